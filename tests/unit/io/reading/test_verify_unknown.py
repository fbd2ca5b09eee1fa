"""What this release does not know is held to its digest, its frames and its sums all the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard

import ztensor
from ztensor.errors import Reason
from ztensor.ext import ALGORITHMS
from ztensor.testing.builder import item, sealed
from ztensor.testing.builder_2 import File2, seekable

DATA = np.arange(1000, dtype=np.uint16).tobytes()
FRAME = zstandard.ZstdCompressor().compress(DATA)
# Type and layout of a file, and the reasons in the report.
UNKNOWN: dict[str, tuple[dict[str, str], str, set[Reason]]] = {
    "type": ({"type": "x.odd"}, "dense", {Reason.UNKNOWN_TYPE}),
    "storage type": ({"dtype": "u9"}, "dense", {Reason.UNKNOWN_DTYPE}),
    "layout": ({}, "x.odd/1", {Reason.UNKNOWN_LAYOUT}),
    "both": ({"type": "x.odd"}, "x.odd/1", {Reason.UNKNOWN_TYPE, Reason.UNKNOWN_LAYOUT}),
    "index type": ({"dtype": "u9"}, "sparse_csr", {Reason.UNKNOWN_DTYPE}),
}


def of_2(fields: dict[str, str], layout: str, packed: bool, damage: str | None) -> bytes:
    file = File2()
    part = file.part(np.frombuffer(DATA, "u1"))
    if packed:
        part = file.packed(DATA, seekable([FRAME], [len(DATA)]))
    if damage == "digest":
        part["digest"] = ALGORITHMS["xxh3"].of([b"others"])
    elif damage is not None:
        file.data[part["blob"][0] + (len(FRAME) // 2 if packed else 9)] ^= 0xFF
    one = {"shape": [1000], "layout": layout, "parts": {"data": part | fields}}
    return file.seal({"objects": {"w": one}})


def of_1(fields: dict[str, str], layout: str, packed: bool, damage: str | None) -> bytes:
    stored = bytearray(FRAME if packed else DATA)
    right = b"others" if damage == "digest" else bytes(stored)
    if damage == "bytes":
        stored[9] ^= 0xFF
    elif damage == "frame":  # damaged before it was hashed: the digest is right
        stored[len(stored) // 2] ^= 0xFF
        right = bytes(stored)
    digest = ALGORITHMS["crc32c"].of([right])
    part: dict[str, Any] = {"dtype": "u16", "offset": 64, "length": len(stored), "digest": digest}
    if packed:
        part |= {"encoding": "zstd", "uncompressed_length": len(DATA)}
    parts = {"data": part | fields}
    one = {"shape": [1000], "format": layout, "components": parts}
    if layout == "sparse_csr":  # the words of DATA as columns; its pointers are unknown
        words = part | {"dtype": "u64"}
        one["shape"] = [1, 1 << 62]
        one["components"] = {"values": words, "indices": words, "indptr": part | fields}
    root = item({"version": "1.2.0", "objects": {"w": one}})
    return sealed(b"ZTEN1000" + bytes(56) + bytes(stored), root, footer=b"ZTEN1000")


def of_npz(fields: dict[str, str], layout: str, packed: bool, damage: str | None) -> bytes:
    del fields, layout
    target = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(target, w=np.arange(1000).astype("M8[s]"))
    data = bytearray(target.getvalue())
    if damage is not None:
        data[len(data) // 2] ^= 0xFF
    return bytes(data)


CASES: list[tuple[Callable[..., bytes], str, bool, str | None]] = [
    (make, what, packed, damage)
    for make, known, damages in (
        (of_2, ("type", "layout", "both"), (None, "digest", "bytes")),
        (of_1, ("storage type", "layout", "index type"), (None, "digest", "bytes", "frame")),
        (of_npz, ("storage type",), (None, "bytes")),
    )
    for what in known
    for packed in (False, True)
    for damage in damages
    if packed or damage != "frame"
]


@pytest.mark.wing
@pytest.mark.parametrize(("make", "what", "packed", "damage"), CASES)
def test_all_that_can_be_checked_is(
    make: Callable[..., bytes], what: str, packed: bool, damage: str | None
) -> None:
    fields, layout, reasons = UNKNOWN[what]
    with ztensor.open(make(fields, layout, packed, damage)) as reader:
        report = reader.verify(deep=True)
    if damage is not None:
        assert report.outcome == "damaged"
        assert {problem.object_name for problem in report.problems} == {"w"}
        return
    assert report.outcome == "ok"
    assert {problem.reason for problem in report.unsupported} == reasons
