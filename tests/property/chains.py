"""Random changes to a file, one commit behind the other, beside a dict that is changed likewise."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
from ztensor import edit

TYPES = ("float32", "float16", "int64", "uint8", "bool", "complex64")
LOGICAL = ("bfloat16", "float8_e4m3fn")
NAMES = tuple(f"name {number}" for number in range(9))


class GivenUpError(Exception):
    """An exception of a caller's own code in the middle of a change."""


class Chain:
    """A file and its expected content.

    Args:
        path: where the file is written.
        version: of the file.
        seed: of the changes.
        alignment: of a file of 2.1.

    Attributes:
        tensors: name to array.
        attributes: those of the file.
        own: those of each object.
        states: how many commits were made.
    """

    def __init__(
        self, path: Path, version: str, seed: str, *, alignment: int | None = None
    ) -> None:
        self.path = path
        self.version = version
        self.tensors: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        self.own: dict[str, dict[str, Any]] = {}
        self.states = 1
        self._dice = random.Random(f"{seed} {version}")
        with ztensor.Writer(path, version=version, alignment=alignment, durable=False) as writer:
            for name in self._dice.sample(NAMES, 3):
                self.tensors[name] = self._array()
                writer.write(name, self.tensors[name])

    def _array(self) -> Any:
        dice = self._dice
        shape = tuple(dice.randrange(5) for _ in range(dice.randrange(3)))
        if dice.random() < 0.2:
            shape = (dice.randrange(3000),)
        name = dice.choice(TYPES if dice.random() < 0.8 else LOGICAL)
        kind = np.dtype(getattr(ml_dtypes, name, name))
        return np.array([dice.randrange(2) for _ in range(int(np.prod(shape)))]).reshape(
            shape
        ).astype(kind)  # fmt: skip

    def commit(self) -> str:
        """Change the file, in one commit, and the dict; return the name of the change."""
        dice, done = self._dice, []
        kind = dice.random()
        if kind < 0.08:
            edit.compact(self.path, durable=False)
            done.append("compact")
        else:
            before = dict(self.tensors), dict(self.attributes), dict(self.own)
            options: dict[str, Any] = {"atomic": dice.random() < 0.15, "durable": False}
            with (
                contextlib.suppress(GivenUpError),
                ztensor.Editor(self.path, **options) as editor,
            ):
                count = dice.choice((1, 1, 2, 4))
                done += [self._change(editor) for _ in range(count)]
                if kind > 0.92:
                    self.tensors, self.attributes, self.own = before
                    done.append("given up")
                    raise GivenUpError
        self.states += 1
        return ", ".join(done)

    def _change(self, editor: ztensor.Editor) -> str:
        dice, tensors = self._dice, self.tensors
        free = [name for name in NAMES if name not in tensors]
        kinds = ["set"]
        kinds += ["write"] * 3 if free else []
        kinds += ["replace", "rename", "remove", "set of one"] if tensors else []
        kinds += ["share"] if free and tensors else []
        kind = dice.choice(kinds)
        one = dice.choice(list(tensors)) if tensors else ""
        if kind == "write":
            name = dice.choice(free)
            tensors[name] = self._array()
            compress = dice.random() < 0.3
            editor.write(name, tensors[name], compress=compress)
        elif kind == "replace":
            tensors[one] = self._array()
            editor.replace(one, tensors[one])
        elif kind == "share":
            name = dice.choice(free)
            tensors[name] = tensors[one]
            if one in self.own:
                self.own[name] = self.own[one]
            editor.share(name, one)
        elif kind == "remove":
            del tensors[one]
            self.own.pop(one, None)
            editor.remove(one)
        elif kind == "rename":
            other = dice.choice(NAMES)
            names = {one: other} if other not in tensors else {one: other, other: one}
            editor.rename(names)
            self.tensors = {names.get(name, name): value for name, value in tensors.items()}
            self.own = {names.get(name, name): value for name, value in self.own.items()}
        elif kind == "set":
            value = dice.choice((1, "x", [1, {"k": None}], None))
            editor.set_attributes({"key": value})
            self.attributes = {} if value is None else {"key": value}
        else:
            self.own[one] = {"unit": dice.randrange(100)}
            editor.set_attributes(self.own[one], name=one)
        return f"{kind} {one}"

    def check(self) -> None:
        """Hold the file to the dict."""
        with ztensor.open(self.path) as reader:
            assert set(reader) == set(self.tensors)
            assert reader.attributes == self.attributes
            report = reader.verify()
            assert report.ok, report.problems
            for name, expected in self.tensors.items():
                for found in (reader[name], reader.read(name, copy=True).components["data"]):
                    assert found.shape == expected.shape
                    assert found.dtype == expected.dtype
                    assert found.tobytes() == expected.tobytes()
                assert reader.metadata(name).attributes == self.own.get(name, {})
