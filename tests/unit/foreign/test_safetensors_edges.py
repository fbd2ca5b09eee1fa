"""safetensors at the edges: of how long a header may be, and of what is told of an odd one."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from ztensor.errors import NotRepresentableError, Reason
from ztensor.foreign import safetensors
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.source.memory import MemorySource
from ztensor.source.stream import StreamSink

if TYPE_CHECKING:
    from ztensor.reading.reader import ObjectReader

ACCEPT = Path(__file__).parents[2] / "corpus" / "foreign" / "accept"
GOLDEN = ACCEPT / "safetensors" / "small.safetensors"
SCALAR = '{"dtype":"U8","shape":[],"data_offsets":[0,1]}'
MORE = '{"a":{"new":[{"x":1e5}],"dtype":"U8","shape":[],"data_offsets":[0,1]}}'


def export(reader: ObjectReader) -> bytes:
    buffer = io.BytesIO()
    sink = StreamSink(buffer)
    safetensors.export(reader, sink, lose=lambda *_: None)
    sink.commit()
    return buffer.getvalue()


def headed(text: str, data: bytes) -> bytes:
    """Return a file with a header as it is given."""
    return struct.pack("<Q", len(text)) + text.encode() + data


def file(entries: dict[str, Any], data: bytes) -> bytes:
    """Return a file with a header as writers write it."""
    return headed(json.dumps(entries, separators=(",", ":")), data)


def tensor(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_only_fields_that_are_not_read_are_told() -> None:
    for text, told in ((f'{{ "a":{SCALAR}}}', []), (MORE, ["unknown field 'a'"])):
        with ztensor.open(headed(text, b"x")) as reader:
            assert list(map(str, reader.unrepresented)) == told


@pytest.mark.parametrize("blank", ["", " "])
def test_the_name_that_comes_twice_is_told(blank: str) -> None:
    text = f'{{"a":{SCALAR},{blank}"b":{SCALAR},"c":{SCALAR},"b":{SCALAR}}}'
    with pytest.raises(ztensor.FormatError) as caught:
        ztensor.open(headed(text, b"x"))
    assert (caught.value.reason, caught.value.found) == (Reason.DUPLICATE_NAME, "'b'")


def test_an_empty_tensor_lies_beside_one_of_an_unknown_type() -> None:
    entries = {"a": tensor("U8", [0], 0, 0), "b": tensor("Q3_LATER", [2], 0, 6)}
    with ztensor.open(file(entries, b"abcdef")) as reader:
        assert reader["a"].shape == (0,)
        assert reader.metadata("b").dtype == "Q3_LATER"


@pytest.mark.parametrize(
    ("length", "reason"), [(0, Reason.TRUNCATED), (7, Reason.TRUNCATED), (8, Reason.FIELD_VALUE)]
)
def test_a_file_has_at_least_the_length_of_its_header(length: int, reason: Reason) -> None:
    with pytest.raises(ztensor.FormatError) as caught:
        safetensors.project(MemorySource(bytes(length)), Budget(DEFAULT_LIMITS, length))
    assert caught.value.reason is reason


@pytest.mark.parametrize("more", [-1, 0])
def test_a_header_may_have_the_length_of_the_limit(more: int) -> None:
    (length,) = struct.unpack("<Q", GOLDEN.read_bytes()[:8])
    limits = ztensor.Limits(manifest_bytes=length + more)
    if more < 0:
        with pytest.raises(ztensor.LimitError, match="manifest_bytes"):
            ztensor.open(GOLDEN, limits=limits)
    else:
        ztensor.open(GOLDEN, limits=limits).close()


@pytest.mark.parametrize("more", [-1, 0])
def test_a_header_of_the_length_of_the_cap_is_written(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    with ztensor.open(ztensor.numpy.save({"a": np.arange(3)})) as reader:
        plain = export(reader)
        monkeypatch.setattr(safetensors, "_MOST_HEADER", struct.unpack("<Q", plain[:8])[0] + more)
        if more < 0:
            with pytest.raises(NotRepresentableError, match="header"):
                export(reader)
        else:
            assert export(reader) == plain
