"""The collector of cycles: out while many values are made, back afterwards, whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ztensor.ext import no_collection


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_out_within_and_back_behind() -> None:
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_brings_it_back() -> None:
    with pytest.raises(ValueError, match="x"), no_collection():
        raise ValueError("x")
    assert gc.isenabled()


def test_where_it_is_off_it_stays_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()
