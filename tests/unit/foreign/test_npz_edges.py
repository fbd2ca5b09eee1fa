"""Archives at the edges of what a field, a member or SciPy can hold."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.corpus.foreign.make_npz import Member, archive, header, npy
from tests.unit.foreign.exported import exported
from ztensor.foreign import npz, zip
from ztensor.foreign.npz import exporting

if TYPE_CHECKING:
    pass

END64, LOCATOR64 = b"PK\6\6", b"PK\6\7"
NINE = {"a": np.arange(9)}


def written(tensors: dict[str, Any]) -> bytes:
    with ztensor.open(ztensor.numpy.save(tensors)) as reader:
        return exported(reader, npz)[0]


# --- Writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
def test_the_name_of_a_member_has_16_bits_of_length(more: int) -> None:
    name = "n" * (0xFFFF - len(".npy") + more)
    with ztensor.open(ztensor.numpy.save({name: np.arange(3), "b": np.zeros(1)})) as reader:
        data, lost = exported(reader, npz)
    with ztensor.open(data) as again:
        assert sorted(again) == (["b"] if more else ["b", name])
    assert lost == (["left out: a zip archive cannot hold the name"] if more else [])


@pytest.mark.parametrize("count", [4, 5])
def test_the_largest_count_of_16_bits_says_to_look_behind_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for archives of 65,535 members, though this one has five."""
    tensors = {name: np.zeros(1) for name in "abcde"[:count]}
    monkeypatch.setattr(zip, "MOST_16", 5)
    data = written(tensors)
    assert data.count(END64) == data.count(LOCATOR64) == (count == 5)
    with ztensor.open(data) as reader:
        assert sorted(reader) == sorted(tensors)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_directory_at_the_largest_number_of_32_bits_says_to_look_behind_it(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = written(NINE)
    directory = plain.index(b"PK\1\2")
    assert END64 not in plain
    monkeypatch.setattr(zip, "MOST_32", directory - more)
    data = written(NINE)
    assert data.count(END64) == data.count(LOCATOR64) == (more >= 0)
    with ztensor.open(data) as reader:
        assert reader["a"].tolist() == list(range(9))


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_member_at_the_largest_number_of_32_bits_is_found_behind_it(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {**NINE, "b": np.zeros(1)}
    second = written(tensors).rindex(b"PK\3\4")
    monkeypatch.setattr(zip, "MOST_32", second - more)
    data = written(tensors)
    extra = b"\1\0\x08\0" + second.to_bytes(8, "little")
    assert data.count(extra) == (more >= 0)
    with ztensor.open(data) as reader:
        assert reader["b"].tolist() == [0]


@pytest.mark.parametrize("more", [-1, 0])
def test_a_dimension_of_scipys_has_63_bits(more: int) -> None:
    wide = ztensor.Tensor.csr(np.ones(1, np.float32), [3], [0, 1], (1, (1 << 63) + more))
    with ztensor.open(written({"array": wide})) as reader:
        if more < 0:
            assert reader.metadata("array").shape == wide.shape
        else:
            assert sorted(reader) == ["array.indices", "array.indptr", "array.values"]


@pytest.mark.parametrize("dtype", ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_scipy_has_every_element_type_but_float16(dtype: str) -> None:
    spec = importlib.util.find_spec(exporting.__name__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)  # its tables are made as it is read
    spec.loader.exec_module(anew)
    csr = ztensor.Tensor.csr(np.ones(1, dtype), [3], [0, 1], (1, 4))
    with ztensor.open(ztensor.numpy.save({"array": csr})) as reader:
        data, _ = exported(reader, anew)
    with ztensor.open(data) as reader:
        assert (list(reader) == ["array"]) is (dtype != "f2")


# --- Reading --------------------------------------------------------------------------------


def test_a_deflated_array_comes_in_pieces() -> None:
    array = np.arange(3 << 17, dtype=np.int64) % 7
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=array)
    with ztensor.open(buffer.getvalue()) as reader:
        pieces = [bytes(piece) for piece in reader.decoded_chunks("a")]
    assert b"".join(pieces) == array.tobytes()
    assert max(map(len, pieces)) <= 1 << 20


@pytest.mark.parametrize("more", [0, 1])
def test_what_says_the_shape_is_short(more: int) -> None:
    """A member of 1024 bytes is still looked at, whatever its header is padded with."""
    text = header("'<i8'", shape="(2,)").rstrip("\n")
    shape = npy(text.ljust(1024 + more - 10 - 16 - 1) + "\n", np.array([1, 4]).tobytes())
    assert len(shape) == 1024 + more
    data = archive(
        Member(b"indices.npy", npy(header("'<i4'", shape="(1,)"), b"\3\0\0\0")),
        Member(b"indptr.npy", npy(header("'<i4'", shape="(2,)"), b"\0\0\0\0\1\0\0\0")),
        Member(b"format.npy", npy(header("'|S3'", shape="()"), b"csr")),
        Member(b"shape.npy", shape),
        Member(b"data.npy", npy(header("'|u1'", shape="(1,)"), b"\7")),
    )
    with ztensor.open(data) as reader:
        if more:
            assert sorted(reader) == ["data", "format", "indices", "indptr", "shape"]
        else:
            assert reader.read("array").to_dense().tolist() == [[0, 0, 0, 7]]
