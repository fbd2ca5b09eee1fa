"""The blocks of ggml: layouts, sizes, floats and rows."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import cbor2
import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of
from tests.corpus.foreign.make_gguf_grids import points_of, text_of
from tests.refusals import refused
from ztensor.errors import ArgumentValueError, LayoutError, Reason, UnsupportedError
from ztensor.ext import LAYOUTS, Component, TensorObject, View
from ztensor.quantization.gguf_grids import GRIDS, points, words

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "corpus/foreign/accept/gguf/blocks.json").read_text()
)
TYPES: dict[str, Any] = {
    name.removeprefix("gguf."): LAYOUTS[name] for name in LAYOUTS if name.startswith("gguf.")
}
KNOWN = [*GOLDEN, "q8_k"]
OTHERS = [name for name in TYPES if name not in KNOWN]
Q4_K = TYPES["q4_k"]


def tensor(name: str, rows: int = 2) -> ztensor.Tensor:
    """Return a matrix of as many rows, of one block each."""
    layout = TYPES[name]
    data = blocks_of(name, rows).reshape(-1)
    shape = (rows, layout.block_type.elements)
    return ztensor.Tensor({"data": data}, shape=shape, format=layout.name)


def obj(length: int = 288, shape: tuple[int, ...] = (2, 256), **changes: Any) -> TensorObject:
    component = Component(**{"dtype": "u8", "offset": 64, "length": length, **changes})
    return TensorObject(shape, "gguf.q4_k", {"data": component})


def test_every_type_is_a_layout() -> None:
    assert set(KNOWN) < TYPES.keys()
    assert len({layout.block_type.number for layout in TYPES.values()}) == len(TYPES)


@pytest.mark.parametrize("name", KNOWN)
def test_2_x_states_the_sizes_of_a_block(tmp_path: Path, name: str) -> None:
    blocks, block = tensor(name), TYPES[name].block_type
    with ztensor.Writer(tmp_path / "new.zt", version="2.1") as writer:
        writer.write("w", blocks)
    stored = (tmp_path / "new.zt").read_bytes()
    for key, size in (("elems_per_block", block.elements), ("block_bytes", block.nbytes)):
        is_stated = cbor2.dumps(key) + cbor2.dumps(size) in stored
        assert is_stated == (name not in ("nvfp4", "tq1_0", "tq2_0"))  # 2.x has no words for these
    with ztensor.open(tmp_path / "new.zt") as reader:
        assert reader.verify().problems == ()
        again = reader.read("w")
    assert (again.format, again.shape) == (blocks.format, blocks.shape)
    assert np.array_equal(again.components["data"], blocks.components["data"])


OBJECTS: dict[str, tuple[TensorObject, list[Reason]]] = {
    "raw": (obj(), []),
    "no rows": (obj(0, (0, 256)), []),
    "compressed": (obj(99, encoding="zstd"), []),
    "short": (obj(287), [Reason.SIZE_MISMATCH]),
    "cut blocks": (obj(288, (2, 255)), [Reason.SIZE_MISMATCH]),
    "scalar": (obj(288, ()), [Reason.SIZE_MISMATCH]),
    "type": (obj(dtype="i8"), [Reason.TYPE_MISMATCH]),
    "logical type": (obj(type="f8_e4m3fn"), [Reason.TYPE_MISMATCH]),
    "no data": (TensorObject((2, 256), "gguf.q4_k", {}), [Reason.COMPONENT_MISSING]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_problems_of_the_manifest(name: str) -> None:
    tensor_object, reasons = OBJECTS[name]
    assert [problem.reason for problem in Q4_K.check_object(tensor_object)] == reasons


def test_the_shape_determines_the_length_of_the_data() -> None:
    more = Component("f32", 512, 8)
    both = TensorObject((3, 2, 512), "gguf.q4_k", {"data": Component("u8", 64, 1), "more": more})
    assert Q4_K.expected_length(both, "data", None) == 6 * 2 * 144
    assert Q4_K.expected_length(both, "more", None) == 8


@pytest.mark.parametrize("name", GOLDEN)
def test_floats_are_those_of_the_package_bit_for_bit(name: str) -> None:
    blocks = np.frombuffer(base64.b64decode(GOLDEN[name]["blocks"]), np.uint8)
    floats = base64.b64decode(GOLDEN[name]["floats"])
    found = TYPES[name].to_dense(View((TYPES[name].block_type.elements,), {"data": blocks}, {}))
    assert found.astype("<f4").tobytes() == floats


@pytest.mark.parametrize("name", GOLDEN)
def test_any_bytes_give_the_floats_of_the_package(name: str) -> None:
    """Infinite scales and NaN among them, and more blocks than are worked on at once."""
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    block_type = TYPES[name].block_type
    rows = 3 * (1 << 16) // block_type.elements + 5
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (rows, block_type.nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = package.quants.dequantize(
            blocks, package.GGMLQuantizationType(block_type.number)
        )
    view = View((rows, block_type.elements), {"data": blocks.reshape(-1)}, {})
    found = TYPES[name].dequantize(view)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", TYPES)
def test_sizes_are_those_of_the_package(name: str) -> None:
    block_type = TYPES[name].block_type
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    try:
        kind = package.GGMLQuantizationType(block_type.number)
    except ValueError:
        pytest.skip(f"this package gguf does not know the number {block_type.number}")
    sizes = package.GGML_QUANT_SIZES[kind]
    assert kind.name.lower() == name
    if name == "q8_1":
        sizes = (32, 36)  # the package has 40; ggml's structure has two halves and 32 bytes
    assert sizes == (block_type.elements, block_type.nbytes)


def test_q8_k_is_a_float_and_integers() -> None:
    blocks = blocks_of("q8_k", 3)
    scale = blocks[:, :4].view("<f4")
    expected = blocks[:, 4:260].view(np.int8).astype(np.float32) * scale
    assert np.array_equal(tensor("q8_k", 3).dequantize(), expected)


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_are_kept_and_not_dequantized(name: str) -> None:
    kept = tensor(name)
    kept.require_valid()
    with refused(UnsupportedError, Reason.UNKNOWN_TYPE):
        kept.dequantize()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", KNOWN)
def test_floats_are_computed_in_float32_and_then_converted(name: str, dtype: str) -> None:
    kept = tensor(name, 700 if name == "q6_k" else 50)
    with np.errstate(all="ignore"):
        expected = kept.dequantize().astype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(kept.dequantize(dtype), expected, strict=True)


def test_threads_do_not_change_the_result() -> None:
    kept = tensor("q4_k", 2000)
    one, two = kept.dequantize(threads=1), kept.dequantize(threads=2)
    assert np.array_equal(one.view(np.uint32), two.view(np.uint32))
    assert np.array_equal(one, kept.to_dense())


def test_no_elements_give_an_empty_array() -> None:
    kept = ztensor.Tensor({"data": np.zeros(0, np.uint8)}, shape=(0, 64), format="gguf.q8_0")
    assert kept.dequantize("float16").shape == (0, 64)


@pytest.mark.parametrize(
    ("size", "dtype", "shape", "expected"),
    [
        (287, "u1", (2, 256), "288 bytes, uint8"),
        (289, "u1", (2, 256), "288 bytes, uint8"),
        (288, "i1", (2, 256), "288 bytes, uint8"),
        (288, "u1", (2, 255), "a last axis of whole blocks of 256"),
        (144, "u1", (), "a last axis of whole blocks of 256"),
    ],
    ids=["short", "long", "type", "cut block", "scalar"],
)
def test_data_must_be_the_blocks_of_the_shape(
    size: int, dtype: str, shape: tuple[int, ...], expected: str
) -> None:
    kept = ztensor.Tensor({"data": np.zeros(size, dtype)}, shape=shape, format="gguf.q4_k")
    with refused(LayoutError, Reason.SIZE_MISMATCH) as caught:
        kept.dequantize()
    assert caught.value.expected == expected


def test_the_element_type_must_be_a_float() -> None:
    with pytest.raises(ArgumentValueError):
        tensor("q4_0").dequantize("int32")


def written(path: Path, kept: ztensor.Tensor, **options: Any) -> Any:
    """Return a slice of a tensor in a new file."""
    with ztensor.Writer(path / "a.zt", **options) as writer:
        writer.write("a", kept)
    return ztensor.open(path / "a.zt").get_slice("a")


INDICES = [slice(1, 4), slice(None, None, -1), slice(5, None, -2), 2, [3, 0, 3], slice(2, 2)]


@pytest.mark.parametrize("is_compressed", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_a_slice_reads_rows(index: Any, is_compressed: bool, tmp_path: Path) -> None:
    kept = tensor("q5_k", 6)
    part = written(tmp_path, kept, compression=is_compressed)[index]
    expected = kept.dequantize()[index].reshape(-1, 256)
    assert part.format == "gguf.q5_k"
    assert np.array_equal(part.dequantize(), expected)


def test_rows_of_three_axes_are_matrices(tmp_path: Path) -> None:
    data = blocks_of("q8_0", 24).reshape(-1)
    kept = ztensor.Tensor({"data": data}, shape=(4, 3, 64), format="gguf.q8_0")
    part = written(tmp_path, kept)[1:3]
    assert np.array_equal(part.dequantize(), kept.dequantize()[1:3])


def test_one_row_is_not_cut(tmp_path: Path) -> None:
    kept = ztensor.Tensor({"data": blocks_of("q8_0").reshape(-1)}, shape=(32,), format="gguf.q8_0")
    lazy = written(tmp_path, kept)
    assert np.array_equal(lazy[...].dequantize(), kept.dequantize())
    with pytest.raises(ArgumentValueError):
        lazy[:8]


# --- Grids ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids_are_those_of_the_package(name: str) -> None:
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    assert np.array_equal(points(name), points_of(name))


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids_are_sets_of_points(name: str) -> None:
    grid, found = GRIDS[name], points(name)
    assert len(found) == {"iq1_s": 2048, "iq2_xs": 512, "iq2_s": 1024, "iq3_s": 512}.get(name, 256)
    assert found.shape[1] == grid.width
    assert set(np.unique(found)) == set(grid.values)
    assert words(name).view(np.int8).tolist() == found.reshape(-1).tolist()


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_the_script_makes_the_table(name: str) -> None:
    texts = text_of(points(name)).encode(), GRIDS[name].members
    one, other = (zlib.decompress(base64.b85decode(text)) for text in texts)  # any zlib's
    assert one == other
