"""Objects with unknown words: refused or read as `versions.md` says, and checked all the same.

What this release does not know is held to its digest, its frames and its sums.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard

import ztensor
from ztensor.errors import ArgumentTypeError, ManifestError, Reason, UnsupportedError
from ztensor.ext import ALGORITHMS
from ztensor.testing.builder import item, sealed
from ztensor.testing.builder_2 import File2, dense, seekable

WORDS = np.arange(1000, dtype=np.uint16)
OTHER = np.array([1, 2, 3], np.uint16)
DATA = WORDS.tobytes()
FRAME = zstandard.ZstdCompressor().compress(DATA)


def of_0(fields: dict[str, str], layout: str) -> bytes:
    entry: dict[str, Any] = {"encoding": "raw", "layout": "dense", "dtype": "uint16", "offset": 64}
    good = entry | {"name": "good", "shape": [3], "size": 6}
    odd = entry | {"name": "odd", "shape": [1000], "offset": 128, "size": 2000, "layout": layout}
    blobs = b"ZTEN0001" + bytes(56) + OTHER.tobytes() + bytes(58) + DATA
    return sealed(blobs, item([odd | fields, good]))


def of_1(
    fields: dict[str, str], layout: str, packed: bool = False, damage: str | None = None
) -> bytes:
    stored = bytearray(FRAME if packed else DATA)
    right = b"others" if damage == "digest" else bytes(stored)
    if damage == "bytes":
        stored[9] ^= 0xFF
    elif damage == "frame":  # damaged before it was hashed: the digest is right
        stored[len(stored) // 2] ^= 0xFF
        right = bytes(stored)
    digest = ALGORITHMS["crc32c"].of([right])
    part: dict[str, Any] = {"dtype": "u16", "offset": 128, "length": len(stored), "digest": digest}
    if packed:
        part |= {"encoding": "zstd", "uncompressed_length": len(DATA)}
    odd = {"shape": [1000], "format": layout, "components": {"data": part | fields}}
    if layout == "sparse_csr":  # the words of DATA as columns; its pointers are unknown
        words = part | {"dtype": "u64"}
        odd["shape"] = [1, 1 << 62]
        odd["components"] = {"values": words, "indices": words, "indptr": part | fields}
    good = {"dtype": "u16", "offset": 64, "length": 6}
    objects = {
        "odd": odd,
        "good": {"shape": [3], "format": "dense", "components": {"data": good}},
    }
    blobs = b"ZTEN1000" + bytes(56) + OTHER.tobytes() + bytes(58) + bytes(stored)
    return sealed(blobs, item({"version": "1.2.0", "objects": objects}), footer=b"ZTEN1000")


def of_2(
    fields: dict[str, str], layout: str, packed: bool = False, damage: str | None = None
) -> bytes:
    file = File2()
    part = file.part(WORDS)
    if packed:
        part = file.packed(DATA, seekable([FRAME], [len(DATA)]), "u16")
    if damage == "digest":
        part["digest"] = ALGORITHMS["xxh3"].of([b"others"])
    elif damage is not None:
        file.data[part["blob"][0] + (len(FRAME) // 2 if packed else 9)] ^= 0xFF
    length = {"decoded_length": len(DATA)} if "encoding" in fields else {}
    odd = {"shape": [1000], "layout": layout, "parts": {"data": part | fields | length}}
    return file.seal({"objects": {"odd": odd, "good": dense(file.part(OTHER), [3])}})


def of_npz(fields: dict[str, str], layout: str, packed: bool, damage: str | None) -> bytes:
    del fields, layout
    target = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(target, odd=WORDS.astype("M8[s]"))
    data = bytearray(target.getvalue())
    if damage is not None:
        data[len(data) // 2] ^= 0xFF
    return bytes(data)


# --- Reading ----------------------------------------------------------------------------------

MAKE: dict[str, Callable[..., bytes]] = {"0.1": of_0, "1.x": of_1, "2.x": of_2}
# The reason of the refusal, or how it is read.
TABLE: dict[tuple[str, str], Reason | str] = {
    **{(version, "encoding"): Reason.UNKNOWN_ENCODING for version in MAKE},
    ("0.1", "dtype"): Reason.UNKNOWN_DTYPE,
    ("1.x", "dtype"): Reason.UNKNOWN_DTYPE,
    ("2.x", "dtype"): "refused",
    ("1.x", "type"): "storage elements",
    ("2.x", "type"): Reason.UNKNOWN_TYPE,
    ("0.1", "layout"): Reason.UNKNOWN_LAYOUT,
    ("1.x", "layout"): "components",
    ("2.x", "layout"): "components",
}


@pytest.mark.wing
@pytest.mark.parametrize(("version", "what"), TABLE, ids="-".join)
def test_unknown_words_are_refused_or_read_as_the_table_says(version: str, what: str) -> None:
    outcome = TABLE[version, what]
    word = "u9" if what == "dtype" else "x.odd/1"
    is_layout = what == "layout"
    data = MAKE[version]({} if is_layout else {what: word}, word if is_layout else "dense")
    if outcome == "refused":
        with pytest.raises(ManifestError):
            ztensor.open(data)
        return
    with ztensor.open(data) as reader:
        assert sorted(reader) == ["good", "odd"]
        assert reader["good"].tolist() == OTHER.tolist()
        assert not reader.verify(deep=True).problems
        assert reader.metadata("odd").stored_nbytes == len(DATA)
        if isinstance(outcome, Reason):
            for read in (reader.read, reader.__getitem__):
                with pytest.raises(UnsupportedError) as caught:
                    read("odd")
                assert (caught.value.reason, caught.value.object_name) == (outcome, "odd")
            with pytest.raises(UnsupportedError):
                ztensor.numpy.load(data)
            return
        found = reader.read("odd")
        assert found.components["data"].tolist() == WORDS.tolist()
        if outcome == "components":
            assert found.format.endswith(word)
            with pytest.raises(ArgumentTypeError):
                reader.read_numpy("odd")
        else:
            assert (found.type, found.dtype) == (word, "uint16")
            assert reader["odd"].tolist() == WORDS.tolist()


# --- Verifying --------------------------------------------------------------------------------

# Type and layout of a file, and the reasons in the report.
UNKNOWN: dict[str, tuple[dict[str, str], str, set[Reason]]] = {
    "type": ({"type": "x.odd"}, "dense", {Reason.UNKNOWN_TYPE}),
    "storage type": ({"dtype": "u9"}, "dense", {Reason.UNKNOWN_DTYPE}),
    "layout": ({}, "x.odd/1", {Reason.UNKNOWN_LAYOUT}),
    "both": ({"type": "x.odd"}, "x.odd/1", {Reason.UNKNOWN_TYPE, Reason.UNKNOWN_LAYOUT}),
    "index type": ({"dtype": "u9"}, "sparse_csr", {Reason.UNKNOWN_DTYPE}),
}
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
        report = reader.verify(["odd"], deep=True)
    if damage is not None:
        assert report.outcome == "damaged"
        assert {problem.object_name for problem in report.problems} == {"odd"}
        return
    assert report.outcome == "ok"
    assert {problem.reason for problem in report.unsupported} == reasons
