"""The manifest is located, and its commit record read; the corpora have more damaged frames."""

from __future__ import annotations

import struct
from typing import Any

import cbor2
import pytest

from tests.refusals import refused
from tests.unit.spec.container.parsing import parse, parse_file
from ztensor.errors import (
    ContainerError,
    DigestMismatchError,
    LimitError,
    Reason,
)
from ztensor.ext import EMITTERS, Component, Manifest, TensorObject
from ztensor.limits import GIB, Limits
from ztensor.spec.container import framing

Frame = framing.Frame
MAGIC_0_1, MAGIC_1 = b"ZTEN0001", b"ZTEN1000"
MAGIC_2 = b"\x89ZT2\r\n\x1a\n"


def size(value: int) -> bytes:
    return value.to_bytes(8, "little")


def locate(file: bytes) -> Frame:
    return framing.locate(file[:8], file[-40:], len(file))


def footer_2(length: int) -> bytes:
    return struct.pack("<QQQII8s", 4096, length, 1, 2, 0, MAGIC_2)


@pytest.mark.parametrize(
    ("head", "tail", "most", "limits"),
    [
        (MAGIC_1, size(100) + MAGIC_1, 100, Limits(manifest_bytes=100)),
        (MAGIC_0_1, bytes(8) + size(100), 100, Limits(manifest_bytes=100)),
        (MAGIC_2, footer_2(100), 100, Limits(manifest_bytes=100)),
        # By default, and in 2.x at most: 1 GiB (1.2 section 5 step 4, 2.1 section 2.3).
        (MAGIC_1, size(GIB) + MAGIC_1, GIB, Limits()),
        (MAGIC_2, footer_2(GIB), GIB, Limits(manifest_bytes=2 * GIB)),
    ],
    ids=["1.2", "0.1", "2", "1.2, default", "2, of the format"],
)
def test_the_cap_on_manifests_is_inclusive(
    head: bytes, tail: bytes, most: int, limits: Limits
) -> None:
    assert framing.locate(head, tail, 4 * GIB, limits).manifest_length == most
    longer = tail.replace(size(most), size(most + 1))
    with refused(LimitError, Reason.LIMIT_MANIFEST) as caught:
        framing.locate(head, longer, 4 * GIB, limits)
    assert "Limits.manifest_bytes" in str(caught.value)
    assert caught.value.expected == f"at most {most} bytes"


def test_a_manifest_of_1_0_over_the_cap_is_a_cut_file() -> None:
    with refused(ContainerError, Reason.FOOTER_MAGIC):
        framing.locate(MAGIC_1, bytes(8) + size(GIB + 1), 4 * GIB)


OBJECT = {
    "shape": [2],
    "format": "dense",
    "components": {"data": {"dtype": "f32", "offset": 64, "length": 8}},
}
PACKED = Component("u8", 128, 11, "f8_e5m2", "zstd", "md5:0", 2)
MANIFEST = Manifest(
    "1.2.0",
    {
        "w": TensorObject((2, 1), "dense", {"data": PACKED}),
        "a": TensorObject((2,), "dense", {"data": Component("f32", 64, 8)}),
    },
    {"by": "us"},
)


def small_file() -> bytes:
    blobs = b"ZTEN1000" + bytes(56) + bytes(range(8)) + bytes(56) + b"12345678901"
    return blobs + EMITTERS["1.2.0"]().emit(MANIFEST, len(blobs))


@pytest.mark.parametrize(
    "near", [24, 256, 65_536, 2**32, 2**40], ids=["1 byte", "2", "4", "8", "8, long"]
)
@pytest.mark.parametrize("prev", [0, 23, 2**32])
def test_end_is_the_end_of_the_file_for_every_length_of_its_head(near: int, prev: int) -> None:
    """`end` is in the manifest, and its own length counts."""
    emitter = EMITTERS["1.2.0"]()
    for offset in range(max(0, near - 160), near, 1 if near == 65_536 else 7):
        emitted = emitter.emit(Manifest("1.2.0", {}), offset, prev=prev)
        commit = cbor2.loads(emitted[:-16])["commit"]
        assert (commit["prev"], commit["end"]) == (prev, offset + len(emitted))


def test_a_damaged_manifest_is_reported_by_its_digest() -> None:
    with refused(DigestMismatchError, Reason.MANIFEST_DIGEST) as caught:
        parse_file(small_file().replace(b"by", b"bx"))
    assert caught.value.algorithm == "crc32c"


OURS = {"prev": 0, "end": 1, "digest": "crc32c:0x12345678"}
# Fields of another writer, or ours of a manifest that another library rewrote.
FOREIGN: list[dict[str, Any]] = [
    {"commit": 5},
    {"commit": None},
    {"commit": "crc32c:0x12345678"},
    {"commit": {}},
    {"commit": {1: 2}},
    {"commit": {"prev": 0, "end": 1}},
    {"commit": {**OURS, "digest": "sha256:" + "0" * 64}},
    {"commit": {**OURS, "digest": "by hand"}},
    {"commit": {**OURS, "prev": "0", "end": "1"}},
    {"commit": OURS, "more": 1},
]
# Ours with one damaged part, which must not switch off the check of everything else.
DAMAGED: list[dict[str, Any]] = [
    {"commit": {**OURS, "digest": b"crc32c:0x12345678"}},
    {"commit": {**OURS, "prev": "0"}},
    {"commit": {**OURS, "end": None}},
    {"commit": {"pref": 0, "end": 1, "digest": OURS["digest"]}},
    {"commit": {"prev": 0, "eng": 1, "digest": OURS["digest"]}},
    {"commis": OURS},
]


@pytest.mark.parametrize("fields", [*FOREIGN, *DAMAGED], ids=str)
def test_only_our_own_record_is_checked(fields: dict[str, Any]) -> None:
    text = cbor2.dumps({"version": "1.2.0", "objects": {"w": OBJECT}, **fields})
    if fields in DAMAGED:
        with refused(DigestMismatchError, Reason.MANIFEST_DIGEST):
            parse("1", text)
        return
    manifest = parse("1", text)
    assert manifest.commit is None
    assert list(manifest.objects) == ["w"]
