"""Delta files: seeds, changes of their fields in an intact file, and every use of one.

The seeds are the conformance files in `tests/deltas`; all start from one state.
"""

from __future__ import annotations

import functools
import io
from pathlib import Path
from random import Random
from typing import Any

import pieces

import ztensor
from ztensor import delta
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.ext import cbor
from ztensor.testing.promise import PromiseBroken

FILES = Path(__file__).resolve().parent.parent / "tests" / "deltas"
KEY = "pyztensor.delta"
ODD: list[Any] = [
    None, -1, 0, 1, 1 << 63, True, 1.5, "", "u8", "f32", "dense", "sparse", "raw", "sparse_csr",
    "changed", "added", "replaced", b"", bytes(16), bytes(32), [], [0], {}, {"data": {}},
]  # fmt: skip


@functools.cache
def base() -> dict[str, Any]:
    """Return the state that the deltas start from."""
    with ztensor.open(FILES / "base.zt") as reader:
        return {name: reader.read(name, copy=True) for name in reader}


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Return the conformance files of 1.2."""
    paths = sorted(FILES.glob("*/*.zt"))
    return tuple(path.read_bytes() for path in paths if "in-2.1" not in path.name)


def used(folder: Path, data: bytes) -> bool:
    """List, check, fold and apply a delta; return whether its tensors were computed."""
    path = folder / "delta.zt"
    path.write_bytes(data)
    try:
        delta.log(path)
        report = delta.verify(path)
        checked = delta.verify(path, base=base())
        if checked.ok and not report.ok:
            raise PromiseBroken("a problem is found only without the base")
        for state in (None, base()):
            delta.fold(path, folder / "fold.zt", base=state)
        if checked.ok and not delta.verify(folder / "fold.zt", base=base()).ok:
            raise PromiseBroken("the fold of one delta gives another state")
        delta.apply_to({name: _copied(tensor) for name, tensor in base().items()}, path)
        list(delta.patches(path, base=base()))
    except DeltaError as refusal:
        if refusal.reason not in DeltaReason or not str(refusal).isprintable():
            raise
        return False
    return checked.ok


def _copied(tensor: Any) -> Any:
    arrays = {role: array.copy() for role, array in tensor.components.items()}
    return ztensor.Tensor(
        arrays,
        shape=tensor.shape,
        format=tensor.format,
        type=tensor.type,
        attributes=tensor.attributes,
    )


def change(rng: Random, data: bytes) -> bytes:
    """Return a file with another field, or other bytes of a difference, sealed again."""
    with ztensor.open(data) as reader:
        fields, objects = dict(reader.attributes[KEY]), reader.read(list(reader), copy=True)
    where = rng.random()
    if where < 0.3:
        fields = _changed(rng, fields)
    elif where < 0.6:
        fields["changes"] = cbor.encode(_changed(rng, cbor.decode(fields["changes"])))
    elif where < 0.7:
        fields["changes"] = pieces.blindly(rng, fields["changes"])
    elif objects:
        array = rng.choice([*objects.values()]).components
        for values in array.values():
            if values.size:
                values[rng.randrange(values.size)] = rng.randrange(256)
    out = io.BytesIO()
    with ztensor.Writer(out, attributes={KEY: fields}) as writer:
        for name, tensor in objects.items():
            writer.write(name, tensor)
    return out.getvalue()


def _changed(rng: Random, value: Any) -> Any:
    """Return a value with one of its values lost or exchanged."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _changed(rng, value[key])}
    if isinstance(value, bytes) and value and rng.random() < 0.5:
        return pieces.blindly(rng, value)
    return rng.choice(ODD)
