"""How much of a PyTorch file is taken, at the edge of each limit."""

from __future__ import annotations

import pytest

import ztensor
from tests.corpus.foreign.make_pt import archive, mapping, number, tensor
from ztensor.errors import LimitError, Reason
from ztensor.limits import Limits

DEPTH = 8
MOST_LEVELS = DEPTH - 4  # a manifest has as many levels around an attribute


def nested(levels: int, kind: str, body: bytes) -> bytes:
    for _ in range(levels):
        body = mapping(a=body) if kind == "dict" else b"](" + body + b"e"
    return body


@pytest.mark.parametrize("kind", ["dict", "list"])
@pytest.mark.parametrize("body", [number(7), tensor()], ids=["number", "tensor"])
def test_dicts_and_lists_nest_as_deep_as_the_limit(kind: str, body: bytes) -> None:
    limits = Limits(depth=DEPTH)
    name = ".".join(["a" if kind == "dict" else "0"] * (MOST_LEVELS + 1))
    reader = ztensor.open(archive(nested(MOST_LEVELS + 1, kind, body)), limits=limits)
    assert [*reader, *reader.attributes] in ([name], ["a"], ["value"])
    with pytest.raises(LimitError) as caught:
        ztensor.open(archive(nested(MOST_LEVELS + 2, kind, body)), limits=limits)
    assert caught.value.reason is Reason.LIMIT_DEPTH
