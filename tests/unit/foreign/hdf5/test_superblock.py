"""Where an HDF5 file begins."""

from __future__ import annotations

import pytest

from ztensor.foreign.hdf5.superblock import SIGNATURE, find
from ztensor.source.memory import MemorySource


@pytest.mark.parametrize("place", [0, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("more", [b"", b"more"])
def test_the_signature_is_found_even_at_the_end(place: int, more: bytes) -> None:
    assert find(MemorySource(bytes(place) + SIGNATURE + more)) == place


@pytest.mark.parametrize(
    "content", [b"", SIGNATURE[:-1], b"\0" + SIGNATURE, bytes(256) + SIGNATURE]
)
def test_elsewhere_it_is_none(content: bytes) -> None:
    assert find(MemorySource(content)) is None


def test_the_first_one_counts() -> None:
    content = bytes(512) + SIGNATURE.ljust(512, b"\0") + SIGNATURE
    assert find(MemorySource(content)) == 512
