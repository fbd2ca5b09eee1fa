"""Objects with overlapping blobs: a rewritten file is not longer than its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.shapes.containers import over
from tests.extent import amount
from ztensor.ext import ALGORITHMS

_DATA = np.random.default_rng(0).integers(0, 256, 240_000, np.uint8)


def file_of(ranges: list[tuple[int, int]], *, digest: bool = True) -> bytes:
    """Return a right file of 1.2 with an object of u8 for each range of one blob."""
    data = _DATA.tobytes()
    objects: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, (offset, length) in enumerate(ranges):
        fields = {"dtype": "u8", "offset": 64 + offset, "length": length, "encoding": "raw"}
        if digest:
            fields["digest"] = ALGORITHMS["crc32c"].of([data[offset : offset + length]])
        objects[f"t{number}"] = length, fields
    return over(data, objects)


COUNT = amount(30, full=400)
_SHAPES: dict[str, list[tuple[int, int]]] = {
    "nested": [(0, len(_DATA) - number) for number in range(COUNT)],
    "growing": [(0, 64 * number + 1) for number in range(1, COUNT)],
    "sliding": [(64 * number, len(_DATA) - 64 * number) for number in range(COUNT)],
    "windows": [(64 * number, 128_000) for number in range(COUNT)],
    "equal": [(0, 20_000)] * amount(300, full=10_000),
}


def whole(path: Path) -> dict[str, bytes]:
    with ztensor.open(path) as reader:
        names = [name for name in reader if int(name[1:]) < COUNT]
        assert reader.verify(names).ok
        return {name: reader[name].tobytes() for name in names}


_VERBS: dict[str, Callable[[Path, Path], object]] = {
    "compact": lambda path, _: ztensor.compact(path),
    "convert": lambda path, out: ztensor.convert(path, out / "new.zt"),
    "migrate": lambda path, _: ztensor.migrate(path, version="1.1.0"),
    "merge": lambda path, out: ztensor.merge([path], out / "new.zt"),
    "split": lambda path, out: ztensor.split(path, out, max_shard_size="1GB"),
    "split small": lambda path, out: ztensor.split(path, out, max_shard_size=1000),
    "remove": lambda path, out: ztensor.edit.remove_tensors(path, out / "new.zt", ["t0"]),
}


@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("shape", _SHAPES)
def test_overlapping_blobs_are_copied_once(shape: str, verb: str, tmp_path: Path) -> None:
    """Hundreds of objects over parts of one blob: 0.24 MB became 50 MB when it was rewritten."""
    path, out = tmp_path / "in.zt", tmp_path / "out"
    path.write_bytes(file_of(_SHAPES[shape]))
    size = path.stat().st_size
    out.mkdir()
    expected = {
        f"t{number}": _DATA[offset : offset + length].tobytes()
        for number, (offset, length) in enumerate(_SHAPES[shape][:COUNT])
    }
    _VERBS[verb](path, out)
    written = [one for one in out.iterdir() if one.suffix == ".zt"] or [path]
    assert sum(one.stat().st_size for one in written) <= size * 1.1 + 4096
    found: dict[str, bytes] = {}
    for one in written:
        found.update(whole(one))
    if verb == "remove":
        del expected["t0"]
    assert {name: found[name] for name in expected} == expected


def test_bytes_that_no_kept_object_covers_are_left_out(tmp_path: Path) -> None:
    """Only bytes of the chosen objects are copied: no dead bytes, no bytes of other objects."""
    path = tmp_path / "in.zt"
    path.write_bytes(file_of([(0, 1000), (64, 1000), (128_000, 500)], digest=False))
    saved = ztensor.compact(path)
    assert path.stat().st_size < 8000
    assert saved > 200_000
    assert whole(path)["t1"] == _DATA[64:1064].tobytes()
    assert whole(path)["t2"] == _DATA[128_000:128_500].tobytes()


def test_a_wrong_digest_of_an_overlapping_blob_is_found(tmp_path: Path) -> None:
    """A blob that is copied with others is still checked by its own digest."""
    path = tmp_path / "in.zt"
    data = file_of([(0, 1000), (64, 1000)])
    wrong = ALGORITHMS["crc32c"].of([_DATA[64:1064].tobytes()]).encode()
    assert data.count(wrong) == 1
    path.write_bytes(data.replace(wrong, b"crc32c:0x00000000"))
    before = path.read_bytes()
    with pytest.raises(ztensor.DigestMismatchError) as caught:
        ztensor.compact(path)
    assert caught.value.object_name == "t1"
    assert path.read_bytes() == before
