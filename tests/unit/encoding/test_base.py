"""What all encodings ask of lengths."""

from __future__ import annotations

import pytest

from ztensor.encoding.base import require_decodable, require_equal_length
from ztensor.errors import EncodingError, LimitError, Reason
from ztensor.limits import Limits


def test_the_cap_itself_may_be_decoded() -> None:
    limits = Limits(decoded_bytes=10)
    require_decodable(0, limits)
    require_decodable(10, limits)
    with pytest.raises(LimitError, match="at most 10 bytes") as caught:
        require_decodable(11, limits)
    assert caught.value.reason is Reason.LIMIT_DECODED


def test_another_length_is_refused() -> None:
    require_equal_length(3, 3, "no")
    for found in (2, 4):
        with pytest.raises(EncodingError, match="the lengths differ") as caught:
            require_equal_length(3, found, "the lengths differ")
        assert caught.value.reason is Reason.SIZE_MISMATCH
