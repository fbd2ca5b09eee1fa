"""Files of 2.x, written: every type and layout, alignment, digests, frames, tied weights."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.interop import cases
from tests.naming import shown
from ztensor.errors import NotRepresentableError
from ztensor.ext import EMITTERS
from ztensor.numpy import save, save_file


def written(**options: Any) -> tuple[io.BytesIO, ztensor.Writer]:
    target = io.BytesIO()
    return target, ztensor.Writer(target, version="2.1", **options)


@pytest.mark.parametrize("version", ["2", "2.0"])
def test_each_word_for_it_is_one_version(version: str) -> None:
    data = save({"a": np.arange(3)}, version=version)
    assert data == save({"a": np.arange(3)}, version="2.1")
    with ztensor.open(data) as reader:
        assert reader.version == "2"


@pytest.mark.parametrize("alignment", [4096, 8192, 16384, 32768, 65536])
def test_everything_begins_at_the_alignment(alignment: int) -> None:
    target, writer = written(alignment=alignment)
    with writer:
        for number in range(5):
            writer.write(str(number), np.arange(number * 1000))
        with writer.stream("s", (3, 2), "float32") as sink:
            sink.write(np.ones((3, 2), np.float32))
    data = target.getvalue()
    assert int.from_bytes(data[-40:-32], "little") % alignment == 0
    with ztensor.open(data) as reader:
        places = [reader.location(name).offset for name in reader]
        assert all(place % alignment == 0 for place in places)
        assert places[0] == alignment
        assert reader.verify(deep=True).outcome == "ok"


WRONG_OPTIONS: list[dict[str, Any]] = [
    *({"alignment": one, "version": "2.1"} for one in (0, 64, 2048, 5000, 1 << 17, True, "4096")),
    {"alignment": 4096},
    *({"checksum": one, "version": "2.1"} for one in ("crc32c", "md5")),
    {"checksum": "xxh3"},
    {"version": "3"},
]


@pytest.mark.parametrize("options", WRONG_OPTIONS, ids=shown)
def test_options_of_another_version_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ztensor.UsageError) as caught:
        ztensor.Writer(tmp_path / "a.zt", **options)
    if options == {"version": "3"}:
        assert all(version in str(caught.value) for version in EMITTERS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(3, 7), (5, 100_000), (2, 70_001), (70_000,)])
@pytest.mark.parametrize("chunk_rows", [None, 1, 1000])
def test_frames_of_one_length_hold_rows_of_any(
    shape: tuple[int, ...], chunk_rows: int | None
) -> None:
    array = (np.arange(np.prod(shape)) % 7).astype(np.uint8).reshape(shape)
    target, writer = written(compression=True, chunk_rows=chunk_rows)
    with writer:
        writer.write("w", array)
        with writer.stream("s", shape, "uint8") as sink:
            sink.write(array)
    with ztensor.open(target.getvalue()) as reader:
        assert reader.verify(deep=True).outcome == "ok"
        for name in "ws":
            np.testing.assert_array_equal(reader[name], array)
            np.testing.assert_array_equal(reader.get_slice(name)[-1:], array[-1:])


def csr(**changed: Any) -> ztensor.Tensor:
    given: dict[str, Any] = {
        "values": np.array([1, 2.5, -3], np.float32), "indices": [0, 3, 1],
        "indptr": [0, 2, 2, 3], "shape": (3, 4),
    } | changed  # fmt: skip
    return ztensor.Tensor.csr(*given.values())


LAYOUTS: dict[str, tuple[Callable[[], ztensor.Tensor], str]] = {
    "sparse_csr": (csr, "zt.sparse_csr/1"),
    "sparse_coo": (lambda: cases.sparse()["points"], "zt.sparse_coo/1"),
    "mx": (lambda: cases.profiles()["mx"], "zt.mx/1"),
    "group": (lambda: cases.profiles()["group"], "zt.quant_group/1"),
    "blocks": (lambda: cases.profiles()["blocks"], "gguf.q8_0/1"),
    "quantized": (
        lambda: ztensor.Tensor.quantize(np.ones((16, 4), np.float32), bits=4, group_size=8),
        "pyztensor.quantized_group/1",
    ),
    "unknown": (lambda: cases.unknown()["later"], "pyztensor.of_tomorrow/1"),
}


@pytest.mark.wing
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("case", LAYOUTS)
def test_every_layout_comes_back(case: str, compression: bool) -> None:
    make, word = LAYOUTS[case]
    tensor = make()
    data = save({"a": tensor}, None, compression, version="2.1")
    assert word.encode() in data
    with ztensor.open(data) as reader:
        assert reader.verify(deep=True).outcome != "damaged"
        found = reader.read("a")
        assert found.format == tensor.format
        assert found.shape == tensor.shape
        assert dict(found.attributes) == dict(tensor.attributes)
        for role, array in tensor.components.items():
            assert found.components[role].tobytes() == array.tobytes()
        if case != "unknown":
            np.testing.assert_array_equal(found.to_dense(), tensor.to_dense())


REFUSED: dict[str, Callable[[], object]] = {
    "columns that fall": lambda: csr(indices=[3, 0, 1]),
    "a column twice": lambda: csr(indices=[3, 3, 1]),
    "a position twice": lambda: ztensor.Tensor.coo(np.ones(2), [[1, 1], [2, 2]], (2, 3)),
    "a tag": lambda: ztensor.Tensor(np.arange(2), attributes={"a": 1 << 70}),
    "rank": lambda: ztensor.Tensor(np.zeros((1,) * 32), attributes={"": 1}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_2_x_has_not_is_refused_before_a_byte(case: str, tmp_path: Path) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        save_file({"bad one": REFUSED[case]()}, tmp_path / "a.zt", version="2.1")
    assert caught.value.object_name == "bad one"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a\0", "x" * 1025], ids=["empty", "NUL", "long"])
def test_names_that_2_x_has_not_are_refused_before_a_byte(name: str, tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a": np.ones(3)}
    role = ztensor.Tensor({"data": np.ones(2), name: np.ones(2)}, shape=(2,), format="acme.pair/1")
    for more, attributes in (({name: np.ones(3)}, {}), ({}, {name: 1}), ({"b": role}, {})):
        with pytest.raises(NotRepresentableError):
            save_file({**tensors, **more}, tmp_path / "a.zt", attributes, version="2.1")
    assert not list(tmp_path.iterdir())
