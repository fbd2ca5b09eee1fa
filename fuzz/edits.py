"""Edits and repairs of safetensors and GGUF files: the old file, or a right new one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import ztensor
from ztensor import edit
from ztensor.errors import NotRepresentableError
from ztensor.testing.promise import PromiseBroken


def changed(folder: Path, data: bytes) -> bool:
    """Edit and repair a file of these bytes; return whether either was possible.

    Raises:
        PromiseBroken: a refused change touched the file, or a kept tensor has other bytes.
        ZTensorError: both were refused.
    """
    path = folder / "edited"
    before = _stored(path, data)
    if edit.edited_format(path) is None:
        return False
    refusal: ztensor.ZTensorError | None = None
    try:
        _edit(path, before)
    except ztensor.ZTensorError as error:
        refusal = error
        _require(path.read_bytes() == data, "a refused edit changed the file")
    path.write_bytes(data)
    try:
        report = edit.repair_format(path, in_place=True, drop_tail=True, drop_lost=True)
    except ztensor.ZTensorError as error:
        _require(path.read_bytes() == data, "a refused repair changed the file")
        if refusal is None or isinstance(error, NotRepresentableError):
            return True
        raise
    after = _stored(path, path.read_bytes())
    _require(after is not None, "a repaired file does not open")
    _require(edit.repair_format(path).findings == (), "a repaired file has findings")
    if before is not None:
        _require(after == before, "a repair of a sound file changed a tensor")
    _require(before is not None or bool(report.findings), "a broken file has no findings")
    return True


def _edit(path: Path, before: dict[str, Any] | None) -> None:
    with edit.FormatEditor(path, durable=False) as editor:
        names = {name: f"renamed.{number}" for number, name in enumerate(editor.keys())}
        first = next(iter(names), None)
        editor.rename(names)
        if first is not None:
            editor.remove(names.pop(first))
        editor.set_attributes({"fuzzed": "a text"})
    after = _stored(path, path.read_bytes())
    _require(before is not None, "a file that does not open was edited")
    _require(after == {names[name]: (before or {})[name] for name in names}, "other tensors")


def _stored(path: Path, data: bytes) -> dict[str, Any] | None:
    """Write a file, and return types, shapes and stored bytes by name; None if it is refused."""
    path.write_bytes(data)
    with contextlib.suppress(ztensor.ZTensorError), ztensor.open(path) as reader:
        found = {}
        for name in reader:
            metadata = reader.metadata(name)
            part = metadata.components["data"]
            stored = data[part.offset : part.offset + part.length]
            found[name] = metadata.shape, part.dtype, part.type, metadata.format, stored
        return found
    return None


def _require(holds: bool, promise: str) -> None:  # noqa: FBT001
    if not holds:
        raise PromiseBroken(promise)
