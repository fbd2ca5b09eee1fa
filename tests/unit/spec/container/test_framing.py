from __future__ import annotations

import struct

import pytest

from tests.refusals import refused
from ztensor.errors import (
    ContainerError,
    LimitError,
    NotZTensorError,
    Reason,
    ZTensorError,
)
from ztensor.limits import GIB, Limits
from ztensor.spec.container.framing import (
    HEAD_BYTES,
    LOOK_BYTES,
    MAGIC_0_1,
    MAGIC_1,
    MAGIC_2,
    TAIL_BYTES,
    Container,
    Frame,
    locate,
)


def size(value: int) -> bytes:
    return value.to_bytes(8, "little")


def look(file: bytes, limits: Limits | None = None) -> Frame:
    return locate(file[:HEAD_BYTES], file[-LOOK_BYTES:], len(file), limits or Limits())


def test_the_magics_are_those_of_the_texts() -> None:
    assert (MAGIC_0_1, MAGIC_1) == (b"ZTEN0001", b"ZTEN1000")
    assert MAGIC_2 == b"\x89ZT2\r\n\x1a\n"


FOUND = {
    "1.2, smallest": (MAGIC_1 + b"\xa0" + size(1) + MAGIC_1, Frame(Container.V1, 8, 1, 25)),
    "1.2": (MAGIC_1 + bytes(56) + b"\xa0" * 5 + size(5) + MAGIC_1, Frame(Container.V1, 64, 5, 85)),
    "1.2, padding before the manifest": (
        MAGIC_1 + bytes(60) + size(5) + MAGIC_1,
        Frame(Container.V1, 63, 5, 84),
    ),
    "1.2, no manifest": (MAGIC_1 + size(0) + MAGIC_1, Frame(Container.V1, 8, 0, 24)),
    "0.1, smallest": (MAGIC_0_1 + b"\x80" + size(1), Frame(Container.V0_1, 8, 1, 17)),
    "0.1": (MAGIC_0_1 + bytes(56) + b"\x80" * 9 + size(9), Frame(Container.V0_1, 64, 9, 81)),
    "1.0, smallest": (MAGIC_1 + b"\xa0" * 9 + size(9), Frame(Container.V1_0, 8, 9, 25)),
    "1.0": (MAGIC_1 + bytes(56) + b"\xa0" * 9 + size(9), Frame(Container.V1_0, 64, 9, 81)),
}


@pytest.mark.parametrize(("file", "frame"), FOUND.values(), ids=FOUND)
def test_the_manifest_is_found(file: bytes, frame: Frame) -> None:
    assert look(file) == frame


NOT_FOUND = {
    "empty": (b"", ContainerError, Reason.TRUNCATED),
    "two bytes": (b"ZT", NotZTensorError, Reason.TRUNCATED),
    "seven bytes of 1.x": (b"ZTEN100", NotZTensorError, Reason.TRUNCATED),
    "seven bytes of 0.1": (b"ZTEN000", NotZTensorError, Reason.TRUNCATED),
    "header only": (MAGIC_1, ContainerError, Reason.TRUNCATED),
    "one byte short": (MAGIC_1 + bytes(15), ContainerError, Reason.TRUNCATED),
    "0.1, one byte short": (MAGIC_0_1 + bytes(7), ContainerError, Reason.TRUNCATED),
    "another format": (b"GGUF\x03\x00\x00\x00" + bytes(64), NotZTensorError, Reason.NOT_ZTENSOR),
    "zeros": (b"\x00" * 64, NotZTensorError, Reason.NOT_ZTENSOR),
    "not our first letters": (b"ZTEM1000" + bytes(64), NotZTensorError, Reason.NOT_ZTENSOR),
    "damaged last letter": (b"ZTEN1001" + bytes(64), NotZTensorError, Reason.HEADER_MAGIC),
    "damaged middle": (b"ZTEN0000" + bytes(64), NotZTensorError, Reason.HEADER_MAGIC),
    "2.x": (MAGIC_2 + bytes(64), ContainerError, Reason.FOOTER_MAGIC),
    "footer of zeros": (MAGIC_1 + bytes(64), ContainerError, Reason.FOOTER_MAGIC),
    "footer of 0.1": (
        MAGIC_1 + bytes(8) + size(1) + MAGIC_0_1,
        ContainerError,
        Reason.FOOTER_MAGIC,
    ),
    "1.0, one byte more than there is": (
        MAGIC_1 + bytes(8) + size(9),
        ContainerError,
        Reason.FOOTER_MAGIC,
    ),
    "one byte more than there is": (
        MAGIC_1 + bytes(8) + size(9) + MAGIC_1,
        ContainerError,
        Reason.MANIFEST_SIZE,
    ),
    "largest number": (
        MAGIC_1 + bytes(8) + size(2**64 - 1) + MAGIC_1,
        ContainerError,
        Reason.MANIFEST_SIZE,
    ),
    "0.1, one byte more than there is": (
        MAGIC_0_1 + bytes(8) + size(9),
        ContainerError,
        Reason.MANIFEST_SIZE,
    ),
    "0.1, largest number": (
        MAGIC_0_1 + bytes(8) + size(2**64 - 1),
        ContainerError,
        Reason.MANIFEST_SIZE,
    ),
    "0.1, no index": (MAGIC_0_1 + size(0), ContainerError, Reason.MANIFEST_SIZE),
    "0.1, no index behind blobs": (
        MAGIC_0_1 + bytes(8) + size(0),
        ContainerError,
        Reason.MANIFEST_SIZE,
    ),
}


@pytest.mark.parametrize(("file", "kind", "reason"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_what_no_manifest_is_found_in(
    file: bytes, kind: type[ZTensorError], reason: Reason
) -> None:
    with refused(kind, reason) as caught:
        look(file)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("head", "footer"), [(MAGIC_1, MAGIC_1), (MAGIC_0_1, b"")], ids=["1.2", "0.1"]
)
def test_the_cap_on_manifests_is_inclusive_and_named(head: bytes, footer: bytes) -> None:
    tail = (size(100) + footer)[-TAIL_BYTES:]
    frame = locate(head, tail.rjust(TAIL_BYTES, b"\0"), 10_000, Limits(manifest_bytes=100))
    assert frame.manifest_length == 100
    with refused(LimitError, Reason.LIMIT_MANIFEST) as caught:
        locate(head, tail.rjust(TAIL_BYTES, b"\0"), 10_000, Limits(manifest_bytes=99))
    assert "Limits.manifest_bytes" in str(caught.value)


def test_by_default_a_manifest_has_up_to_a_gibibyte() -> None:
    """1.2 section 5, step 4; nothing is allocated to find that out."""
    assert locate(MAGIC_1, size(GIB) + MAGIC_1, 4 * GIB).manifest_length == GIB
    with pytest.raises(LimitError):
        locate(MAGIC_1, size(GIB + 1) + MAGIC_1, 4 * GIB)
    with pytest.raises(ContainerError):
        locate(MAGIC_1, bytes(8) + size(GIB + 1), 4 * GIB)  # as 1.0: no such manifest there


def test_the_caps_on_manifests_of_2_are_inclusive() -> None:
    def look_for(length: int, limits: Limits) -> Frame:
        footer = struct.pack("<QQQII8s", 4096, length, 1, 2, 0, MAGIC_2)
        return locate(MAGIC_2, footer, 4 * GIB, limits)

    for most, limits in ((100, Limits(manifest_bytes=100)), (GIB, Limits(manifest_bytes=2 * GIB))):
        assert look_for(most, limits).manifest_length == most
        with pytest.raises(LimitError, match=f"at most {most} bytes"):
            look_for(most + 1, limits)
