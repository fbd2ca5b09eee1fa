"""Operations on files, each with the state that it must lead to."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ztensor
from tests.faults.judge import Judge, State, read_state
from ztensor import edit
from ztensor.delta import apply, make
from ztensor.io.source import appending
from ztensor.numpy import save_file
from ztensor.testing.builder import build

TARGET = "model.zt"
OTHER = "other.zt"


def first_tensors() -> dict[str, Any]:
    """Return the tensors of a file before it is changed: every layout, some bytes shared."""
    dice = np.random.default_rng(1)
    tied = dice.standard_normal((6, 8)).astype(np.float32)
    return {
        "embed": tied,
        "head": tied,
        "layer.0.weight": dice.standard_normal((16, 24)).astype(np.float32),
        "layer.0.bias": dice.integers(-100, 100, 24).astype(np.int64),
        "layer.1.weight": dice.integers(0, 255, (40, 40)).astype(np.uint8),
        "scalar": np.float64(3.5),
        "empty": np.zeros((0, 4), np.int32),
        "sparse": ztensor.Tensor(
            {
                "indices": np.array([0, 2, 2], np.uint64),
                "indptr": np.array([0, 2, 3], np.uint64),
                "values": np.array([0.5, 2, -1], np.float32),
            },
            shape=(2, 3),
            format="sparse_csr",
        ),
    }


def other_tensors() -> dict[str, Any]:
    """Return the tensors of a second file: some names are those of the first."""
    dice = np.random.default_rng(2)
    return {
        "embed": dice.standard_normal((6, 8)).astype(np.float32),
        "layer.2.weight": dice.standard_normal((20, 30)).astype(np.float32),
        "scalar": np.float64(-1),
    }


NEW = np.random.default_rng(3).standard_normal((25, 41)).astype(np.float32)
THREE = {
    "new.a": NEW,
    "new.b": np.arange(700, dtype=np.int16),
    "new.c": np.arange(3, dtype=np.uint8),
}
SMALL_PIECES = 1500
IN_PLACE = ("append", "replace", "remove", "rename", "set", "compact", "apply")


def start(folder: Path, *, version: str = "1.2.0") -> None:
    """Write the two files; the first one contains two older states."""
    if version in ("1.2.0", "2.1"):
        options: dict[str, Any] = {"version": version}
        if version == "2.1":
            options["alignment"] = 4096  # short files are judged faster
        tensors = first_tensors()
        scalar = tensors.pop("scalar")
        path = folder / TARGET
        with ztensor.Writer(path, attributes={"step": "1"}, durable=False, **options) as writer:
            writer.write("gone", np.arange(50))
            for name, value in tensors.items():
                if name == "head":
                    writer.share(name, "embed")
                else:
                    writer.write(name, value, compress=name == "layer.1.weight")
        with ztensor.Editor(folder / TARGET, durable=False) as editor:
            editor.write("scalar", scalar)
        edit.remove_tensors(folder / TARGET, names="gone", durable=False)
    else:
        (folder / TARGET).write_bytes(build(version))
    save_file(other_tensors(), folder / OTHER, {"step": "2"}, durable=False)


@contextlib.contextmanager
def small_pieces(nbytes: int) -> Iterator[None]:
    """Store new bytes in pieces of this length: of 8 MiB each the crash states were too many."""
    with mock.patch.multiple(appending, _PIECE_BYTES=nbytes, _GUARDS_PER_PIECE=0):
        yield


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One way to change a folder.

    Attributes:
        name: how tables and tests call it.
        group: the table's row.
        run: does it, in a folder made by `start`.
        expected: the state it leads to, from the old one.
        target: the file it changes.
        version: of the file it starts from.
        pieces: store new bytes in pieces this long, each with a guard of its own.
        puts_in_place: it writes a whole file and renames it; others extend the file there is.
        between: states on the way, from the old one, where it makes several commits.
        is_never_torn: no moment, not even of the commit, leaves a file that does not open.
        also: writes further files before.
    """

    name: str
    group: str
    run: Callable[[Path], object]
    expected: Callable[[State], State]
    target: str = TARGET
    version: str = "1.2.0"
    pieces: int | None = None
    puts_in_place: bool = False
    between: Callable[[State], list[State]] | None = None
    is_never_torn: bool = False
    also: Callable[[Path], object] | None = None

    def in_pieces(self) -> contextlib.AbstractContextManager[None]:
        """Cut new bytes as the operation asks."""
        return contextlib.nullcontext() if self.pieces is None else small_pieces(self.pieces)

    def prepare(self, folder: Path) -> Judge:
        """Write the files, and return the judge of the target."""
        start(folder, version=self.version)
        if self.also is not None:
            self.also(folder)
        before = read_state(folder / TARGET)
        path = folder / self.target
        old = read_state(path) if path.exists() else None
        between = [] if self.between is None else self.between(before)
        return Judge(old, self.expected(before), between)


def dense(array: Any, attributes: dict[str, Any] | None = None) -> tuple[Any, ...]:
    array = np.asarray(array)
    return array.shape, {"data": array.tobytes()}, attributes or {}


def _with(state: State, **changes: Any) -> State:
    objects = {**state["objects"], **changes.pop("objects", {})}
    for name in changes.pop("without", ()):
        del objects[name]
    return {"objects": objects, "attributes": {**state["attributes"], **changes}}


def _saved(state: State, attributes: dict[str, Any]) -> State:
    return {"objects": state, "attributes": attributes}


def _state_of_others() -> State:
    return {name: dense(array) for name, array in other_tensors().items()}


def _changed_others() -> State:
    changed = _changed(other_tensors(), ("embed",))
    return {name: dense(array) for name, array in changed.items()}


def _save(folder: Path) -> None:
    save_file(other_tensors(), folder / TARGET, {"step": "3"}, durable=True)


def _save_new(folder: Path) -> None:
    save_file(other_tensors(), folder / "fresh.zt", {"step": "3"}, durable=True)


def _append(folder: Path, tensors: dict[str, Any], **options: Any) -> None:
    with ztensor.Editor(folder / TARGET, **options) as writer:
        for name, array in tensors.items():
            writer.write(name, array)


def _append_behind_aborted(folder: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), ztensor.Editor(folder / TARGET) as writer:
        writer.write("forgotten", THREE["new.b"])
        raise ZeroDivisionError
    _append(folder, {"new": NEW})


def _remove_behind_unflushed(folder: Path) -> None:
    _append(folder, {"new": NEW}, durable=False)
    edit.remove_tensors(folder / TARGET, names="scalar")


def _append_stream(folder: Path) -> None:
    with (
        ztensor.Editor(folder / TARGET) as writer,
        writer.stream("new", NEW.shape, NEW.dtype) as sink,
    ):
        for start_row in range(0, len(NEW), 3):
            sink.write(NEW[start_row : start_row + 3])


def _all_at_once(folder: Path, **options: Any) -> None:
    with ztensor.Editor(folder / TARGET, **options) as editor:
        editor.write("new", NEW)
        editor.replace("layer.0.weight", NEW[:2])
        editor.remove("scalar")
        editor.rename({"embed": "head", "head": "embed"})
        editor.set_attributes({"step": "9"})


def _after_all(state: State) -> State:
    changed = _with(state, objects={"new": dense(NEW), "layer.0.weight": dense(NEW[:2])}, step="9")
    del changed["objects"]["scalar"]
    return changed


def _merge(folder: Path, output: str) -> None:
    inputs = [folder / TARGET, folder / OTHER]
    edit.merge(inputs, folder / output, on_conflict="last", durable=True)


def _merged(state: State) -> State:
    return _with(state, objects=_state_of_others(), step="2")


def _swapped(state: State) -> State:
    return _with(
        state, objects={"scalar": state["objects"]["embed"], "embed": state["objects"]["scalar"]}
    )


DELTA = "delta.zt"


def _changed(tensors: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return tensors with one other element in some of them."""
    changed = {name: np.array(tensors[name]) for name in names}
    for array in changed.values():
        array.flat[-1] += 1
    return tensors | changed


def _make_delta(folder: Path, names: tuple[str, ...]) -> None:
    """Write a delta of the first file: elements change, a tensor is removed and one is added."""
    with ztensor.open(folder / TARGET) as reader:
        tensors = {name: reader[name] for name in reader if name != "scalar"}
        new = _changed(tensors, names) | {"new": NEW[:3]}
        make(reader, new, folder / DELTA)


def _make_other_delta(folder: Path) -> None:
    """Write a safetensors file, and its delta."""
    tensors = other_tensors()
    save_file(tensors, folder / "model.safetensors", {"step": "2"}, durable=False)
    make(tensors, _changed(tensors, ("embed",)), folder / DELTA)


def _after_delta(state: State, names: tuple[str, ...]) -> State:
    changed = _changed(first_tensors(), names)
    objects = {name: dense(changed[name]) for name in names}
    return _with(state, objects={"new": dense(NEW[:3]), **objects}, without=["scalar"])


# Files of other formats, and the tensors of types that both can hold.
FORMATS = ("safetensors", "gguf")


def _format_tensors() -> dict[str, Any]:
    tensors = first_tensors()
    return {name: tensors[name] for name in ("embed", "layer.0.weight", "layer.0.bias", "scalar")}


def _make_format(folder: Path, suffix: str) -> None:
    path = folder / f"model.{suffix}"
    save_file(_format_tensors(), path, {"step": "1", "who": "me"}, durable=False)


def _types(keys: tuple[str, ...], suffix: str) -> dict[str, Any]:
    """Return the attribute that has the types of a GGUF file's keys."""
    return {"GGUF.types": [[key, "str"] for key in keys]} if suffix == "gguf" else {}


def _edit_format(folder: Path, suffix: str) -> None:
    with edit.open_editor(folder / f"model.{suffix}") as editor:
        editor.write("new", NEW)
        editor.replace("layer.0.weight", NEW[:2])
        editor.remove("scalar")
        editor.rename({"embed": "layer.0.bias", "layer.0.bias": "embed"})
        editor.set_attributes({"step": "9", "who": None})


def _set_long(folder: Path, suffix: str) -> None:
    edit.set_attributes(folder / f"model.{suffix}", {"long": "x" * 99})


def _always(state: State, _: State) -> State:
    return state


def _edited_format(suffix: str) -> State:
    tensors = _format_tensors()
    changed = {
        "embed": tensors["layer.0.bias"],
        "layer.0.bias": tensors["embed"],
        "layer.0.weight": NEW[:2],
        "new": NEW,
    }
    objects = {name: dense(array) for name, array in changed.items()}
    return _saved(objects, {"step": "9", **_types(("step",), suffix)})


def _set_format(suffix: str) -> State:
    objects = {name: dense(array) for name, array in _format_tensors().items()}
    keys = ("step", "who", "long")
    return _saved(objects, {"step": "1", "who": "me", "long": "x" * 99, **_types(keys, suffix)})


_FEW = ("layer.0.bias",)
_MOST = ("layer.0.bias", "layer.0.weight", "layer.1.weight", "embed", "head")

_OPERATIONS = [
    Operation(
        "save new", "save", _save_new, lambda _: _saved(_state_of_others(), {"step": "3"}),
        target="fresh.zt", puts_in_place=True,
    ),
    Operation(
        "save over", "save", _save, lambda _: _saved(_state_of_others(), {"step": "3"}),
        puts_in_place=True,
    ),
    Operation(
        "append one", "append", lambda f: _append(f, {"new": NEW}),
        lambda s: _with(s, objects={"new": dense(NEW)}),
    ),
    Operation(
        "append three", "append", lambda f: _append(f, THREE),
        lambda s: _with(s, objects={name: dense(array) for name, array in THREE.items()}),
    ),
    Operation(
        "append compressed", "append", lambda f: _append(f, THREE, compression=True),
        lambda s: _with(s, objects={name: dense(array) for name, array in THREE.items()}),
    ),
    Operation(
        "append stream in pieces", "append", _append_stream,
        lambda s: _with(s, objects={"new": dense(NEW)}), pieces=SMALL_PIECES,
    ),
    Operation(
        "append to 1.1", "append", lambda f: _append(f, {"new": NEW}),
        lambda s: _with(s, objects={"new": dense(NEW)}), version="1.1.0",
    ),
    Operation(
        "append behind an aborted one", "append", _append_behind_aborted,
        lambda s: _with(s, objects={"new": dense(NEW)}), pieces=SMALL_PIECES,
    ),
    Operation(
        "append, atomic", "append", lambda f: _append(f, {"new": NEW}, atomic=True),
        lambda s: _with(s, objects={"new": dense(NEW)}), puts_in_place=True,
    ),
    Operation(
        "append to 0.1", "append", lambda f: _append(f, {"new": NEW}),
        lambda s: _with(s, objects={"new": dense(NEW)}), version="0.1.0", puts_in_place=True,
    ),
    Operation(
        "replace", "replace", lambda f: edit.replace_tensor(f / TARGET, "layer.0.weight", NEW),
        lambda s: _with(s, objects={"layer.0.weight": dense(NEW)}),
    ),
    Operation(
        "replace by another type", "replace",
        lambda f: edit.replace_tensor(f / TARGET, "sparse", THREE["new.b"]),
        lambda s: _with(s, objects={"sparse": dense(THREE["new.b"])}), pieces=SMALL_PIECES,
    ),
    Operation(
        "remove", "remove", lambda f: edit.remove_tensors(f / TARGET, names=["embed", "scalar"]),
        lambda s: _with(s, without=["embed", "scalar"]),
    ),
    Operation(
        "remove behind an unflushed append", "remove", _remove_behind_unflushed,
        lambda s: _with(s, objects={"new": dense(NEW)}, without=["scalar"]),
        between=lambda s: [_with(s, objects={"new": dense(NEW)})],
    ),
    Operation(
        "rename", "rename",
        lambda f: edit.rename_tensors(f / TARGET, {"embed": "scalar", "scalar": "embed"}), _swapped,
    ),
    Operation(
        "rename, atomic", "rename",
        lambda f: edit.rename_tensors(
            f / TARGET, {"embed": "scalar", "scalar": "embed"}, atomic=True
        ),
        _swapped, puts_in_place=True,
    ),
    Operation(
        "set", "set", lambda f: edit.set_attributes(f / TARGET, {"step": "2", "who": "me"}),
        lambda s: _with(s, step="2", who="me"),
    ),
    Operation(
        "set of an object", "set",
        lambda f: edit.set_attributes(f / TARGET, {"unit": "m"}, name="scalar"),
        lambda s: _with(s, objects={"scalar": dense(np.float64(3.5), {"unit": "m"})}),
    ),
    Operation("all at once", "replace", _all_at_once, _after_all, pieces=SMALL_PIECES),
    Operation(
        "all at once, atomic", "replace", lambda f: _all_at_once(f, atomic=True), _after_all,
        puts_in_place=True,
    ),
    Operation(
        "compact", "compact", lambda f: edit.compact(f / TARGET), lambda s: s, puts_in_place=True
    ),
    Operation(
        "merge", "merge", lambda f: _merge(f, "merged.zt"), _merged, target="merged.zt",
        puts_in_place=True,
    ),
    Operation(
        "merge into an input", "merge", lambda f: _merge(f, TARGET), _merged, puts_in_place=True
    ),
    Operation(
        "apply in place", "apply", lambda f: apply(f / DELTA, f / TARGET, in_place=True),
        lambda s: _after_delta(s, _FEW), pieces=SMALL_PIECES,
        also=lambda f: _make_delta(f, _FEW),
    ),
    Operation(
        "apply in place, anew", "apply", lambda f: apply(f / DELTA, f / TARGET, in_place=True),
        lambda s: _after_delta(s, _MOST), puts_in_place=True,
        also=lambda f: _make_delta(f, _MOST),
    ),
    Operation(
        "apply to a new file", "apply to a file",
        lambda f: apply(f / DELTA, f / TARGET, f / "fresh.zt", durable=True),
        lambda s: _after_delta(s, _FEW), target="fresh.zt", puts_in_place=True,
        also=lambda f: _make_delta(f, _FEW),
    ),
    Operation(
        "apply over another file", "apply to a file",
        lambda f: apply(f / DELTA, f / TARGET, f / OTHER),
        lambda s: _after_delta(s, _FEW), target=OTHER, puts_in_place=True,
        also=lambda f: _make_delta(f, _FEW),
    ),
    Operation(
        "apply in place, safetensors", "apply to a file",
        lambda f: apply(f / DELTA, f / "model.safetensors", in_place=True),
        lambda _: _saved(_changed_others(), {"step": "2"}), target="model.safetensors",
        puts_in_place=True, also=_make_other_delta,
    ),
]  # fmt: skip
_OPERATIONS += [
    Operation(
        f"{name}, {suffix}", "edit of another format", functools.partial(run, suffix=suffix),
        functools.partial(_always, expected(suffix)), target=f"model.{suffix}",
        puts_in_place=True, also=functools.partial(_make_format, suffix=suffix),
    )
    for suffix in FORMATS
    for name, run, expected in (
        ("set", _set_long, _set_format),
        ("all at once", _edit_format, _edited_format),
    )
]  # fmt: skip
# What changes a file in place, tried on files of 2.x, where nothing is ever torn.
_OPERATIONS += [
    dataclasses.replace(
        operation, name=f"{operation.name}, 2.x", group=f"{operation.group}, 2.x", version="2.1",
        is_never_torn=True,
    )
    for operation in _OPERATIONS
    if operation.version == "1.2.0" and operation.group in IN_PLACE
]  # fmt: skip
OPERATIONS = {operation.name: operation for operation in _OPERATIONS}
