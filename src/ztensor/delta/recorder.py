"""`Recorder`: publish the states of a training loop as a chain of deltas."""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Mapping
from typing import Any

from ztensor import Writer
from ztensor.delta.applied import Applied
from ztensor.delta.chain import Found
from ztensor.delta.changes import Delta
from ztensor.delta.folding import links_from
from ztensor.delta.making import make
from ztensor.delta.opening import open as open_delta
from ztensor.delta.states import IDS, State
from ztensor.errors import ArgumentValueError, describe, system_call
from ztensor.ext import OpenFolder, Place, path_text
from ztensor.options import require_choice
from ztensor.typing import Path, TensorLike

_NAME = re.compile(r"(\d{6,})\.(full|delta)\.zt")


class Recorder:
    """Publishes states as a chain of deltas in a folder, with a full file now and then.

    A folder without a chain begins with a full file of the state. In a folder with one, the
    recorder continues: it reads the newest published state. A process that is killed at any moment
    leaves a complete chain. A folder must have one recorder at a time.

    Args:
        state: the tensors of the model, for a new folder: a mapping from names to arrays or tensors
            of a framework. They are copied.
        folder: the folder; it is made if it does not exist.
        full_every: a full file follows each so many deltas, so that older files can be deleted;
            None writes only the first.
        options: of `make`, such as `effort` or `ids`; `ids` stay as they are in a chain.

    Attributes:
        folder: the argument.

    Raises:
        DeltaError: the chain in the folder is broken or damaged.
        SourceError: the folder cannot be read or written.
    """

    def __init__(
        self,
        state: Mapping[str, TensorLike],
        folder: Path,
        *,
        full_every: int | None = 30,
        **options: Any,
    ) -> None:
        if full_every is not None and (type(full_every) is not int or full_every < 1):
            raise ArgumentValueError(
                "full_every must be a number of deltas, or None", found=describe(full_every)
            )
        inspect.signature(make).bind({}, state, folder, label=None, **options)  # or a TypeError
        if options.get("dialect", "zt") != "zt":
            raise ArgumentValueError("a recorder writes deltas of the dialect 'zt' only")
        self.folder, self._full_every, self._options = path_text(folder), full_every, options
        self._ids = options.get("ids", "sha256")
        require_choice("ids", self._ids, tuple(IDS))
        OpenFolder.make(self.folder)
        with system_call("cannot list the folder", self.folder), OpenFolder(self.folder) as inside:
            inside.sweep(r"\d{6,}\.(?:full|delta)\.zt")
        numbers = self._numbers()
        self._next = max(numbers["full"] + numbers["delta"], default=-1) + 1
        if numbers["full"]:
            self._published = self._newest(max(numbers["full"]), max(numbers["delta"], default=-1))
        else:
            self._published = _Copy(State(state))
            self._write_full(self._path("full"), State(state))
            self._next += 1

    def publish(self, state: Mapping[str, TensorLike], label: object = None) -> str:
        """Write the difference to the state published before, and return the path of the delta.

        Args:
            state: the tensors of the model.
            label: of the delta, such as a step.

        Raises:
            NotRepresentableError: a tensor cannot be stored.
            UsageError: another recorder has written to the folder.
            SourceError: the file cannot be written; the next call publishes the state.
        """
        after, path, full = State(state), self._path("delta"), self._path("full")
        Place.of(path).require_free()  # another recorder has the folder
        make(self._published, after, path, label=label, **self._options)
        with open_delta(path) as delta:
            self._published.follow(after, delta)
        self._next += 1
        if self._full_every is not None and (self._next - 1) % self._full_every == 0:
            self._write_full(full, after)
        return path

    def _path(self, kind: str, number: int | None = None) -> str:
        number = self._next if number is None else number
        return os.path.join(self.folder, f"{number:06d}.{kind}.zt")

    def _numbers(self) -> dict[str, list[int]]:
        """Return the numbers of full files and deltas in the folder."""
        with system_call("cannot list the folder", self.folder):
            names = map(_NAME.fullmatch, os.listdir(self.folder))
        numbers: dict[str, list[int]] = {"full": [], "delta": []}
        for match in filter(None, names):
            numbers[match[2]].append(int(match[1]))
        return numbers

    def _newest(self, full: int, last: int) -> _Copy:
        """Return the state published last, from a full file and the deltas behind it."""
        with State(self._path("full", full)) as base, Found(self.folder) as found:
            newest = [each for each in found.deltas if each.name == self._path("delta", last)]
            if newest and newest[0].ids != self._ids:
                raise ArgumentValueError(
                    "the chain in the folder has other ids",
                    file=newest[0].name,
                    expected=f"ids={newest[0].ids!r}",
                    found=f"ids={self._ids!r}",
                )
            links = []
            if last > full and newest:
                links = links_from(base, found.deltas, newest[0].result)
            return _Copy(Applied(base, links))

    def _write_full(self, path: str, state: State) -> None:
        """Write the published state to a file of its own; tensors tied in `state` share bytes."""
        names = ("version", "checksum", "durable", "threads")
        options = {name: self._options[name] for name in names if name in self._options}
        first: dict[object, str] = {}
        with Writer(path, **options) as writer:
            for name, id_ in self._published.ids(self._ids).items():
                places = state.places(name)
                same = first.setdefault((id_, places), name) if places else name
                if same == name:
                    writer.write(name, self._published[name])
                else:
                    writer.share(name, same)


class _Copy(State):
    """A copy of a state, which can follow it."""

    def __init__(self, state: State) -> None:
        super().__init__({name: copy.deepcopy(state[name]) for name in state})

    def follow(self, after: State, delta: Delta) -> None:
        """Become the state after a delta, with its new tensors from `after`."""
        gone = {*delta.removed, *delta}
        changed = {name: copy.deepcopy(after[name]) for name in delta}
        self._values = {n: v for n, v in self._values.items() if n not in gone} | changed
        self._ids = {key: id_ for key, id_ in self._ids.items() if key[1] not in gone}
        if delta.ids is not None:  # computed when it was made
            ids = after.ids(delta.ids, changed)
            self._ids.update({(delta.ids, name): id_ for name, id_ in ids.items()})
