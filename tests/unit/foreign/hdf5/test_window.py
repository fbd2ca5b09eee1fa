"""The window through which an HDF5 file is read: what it gives, and what it refuses."""

from __future__ import annotations

import pytest

from tests.unit.foreign.hdf5.parts import summed, window_of
from ztensor.errors import FormatError, LimitError, Reason
from ztensor.foreign.hdf5.window import Window, malformed
from ztensor.limits import Budget, Limits
from ztensor.source.memory import MemorySource

CONTENT = bytes(range(256)) * 100  # of several pages, the last one not whole


def test_an_error_says_what_was_expected_and_what_was_found() -> None:
    error = malformed("it is odd", "one", "another")
    assert (error.expected, error.found) == ("'one'", "'another'")
    bare = malformed("it is odd")
    assert (bare.expected, bare.found) == (None, None)
    assert error.reason == bare.reason == Reason.FIELD_VALUE
    assert "it is odd" in str(error)


@pytest.mark.parametrize("base", [0, 512, 8192])
def test_bytes_lie_at_their_address_behind_the_base(base: int) -> None:
    source = MemorySource(CONTENT)
    window = Window(source, base, Budget(Limits(), source.size), 8, 8)
    size = len(CONTENT) - base
    for address in (0, 1, 7679, 7680, 8191, 8192, size - 1, size):
        for length in (0, 1, 511, 513, 8192, 8193):
            if address + length <= size:
                start = base + address
                assert window.read(address, length) == CONTENT[start : start + length]
            else:
                with pytest.raises(FormatError) as caught:
                    window.read(address, length)
                assert caught.value.reason == Reason.OUT_OF_BOUNDS


def test_all_structures_are_no_longer_than_twice_the_file() -> None:
    window = window_of({}, 100)
    for _ in range(2):
        assert len(window.take(0, 100)) == 100
    window.take(0, 0)
    with pytest.raises(FormatError, match="structures lie in one another"):
        window.take(0, 1)


@pytest.mark.parametrize(("widths", "is_right"), [((2, 8), True), ((4, 2), True), ((1, 8), False)])
def test_widths_of_addresses_and_lengths(widths: tuple[int, int], is_right: bool) -> None:
    source = MemorySource(b"")
    for offset_size, length_size in (widths, widths[::-1]):
        if is_right:
            window = Window(source, 0, Budget(Limits(), 0), offset_size, length_size)
            assert window.record("O L").size == sum(widths)
            assert window.undefined == 256**offset_size - 1
            assert not window.is_defined(window.undefined)
        else:
            with pytest.raises(FormatError, match="addresses are 2, 4 or 8 bytes"):
                Window(source, 0, Budget(Limits(), 0), offset_size, length_size)


def test_what_is_nested_as_deep_as_the_limit_is_read() -> None:
    window = window_of({}, limits=Limits(depth=3))
    window.require_depth(3)
    with pytest.raises(LimitError) as caught:
        window.require_depth(4)
    assert caught.value.reason == Reason.LIMIT_DEPTH


def test_a_structure_is_met_once_and_has_its_sign_and_sum() -> None:
    window = window_of({0: summed(b"SIGNbody"), 20: b"SIGNbody", 40: summed(b"SIGMbody")})
    assert window.block(0, b"SIGN", 12, has_sum=True)[:-4] == b"SIGNbody"
    with pytest.raises(FormatError, match="two addresses lead to one structure"):
        window.block(0, b"SIGN", 12, has_sum=True)
    assert window.block(20, b"SIGN", 8, has_sum=False) == b"SIGNbody"
    with pytest.raises(FormatError, match="another sign"):
        window.block(40, b"SIGN", 12, has_sum=True)
    with pytest.raises(FormatError, match="a checksum differs"):
        window.block(1, b"IGN", 12, has_sum=True)
