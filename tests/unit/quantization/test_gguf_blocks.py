from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of
from tests.refusals import refused
from ztensor.errors import ArgumentValueError, LayoutError, Reason, UnsupportedError
from ztensor.quantization.gguf_blocks import BLOCK_TYPES, GGUF_LAYOUTS, BlockType
from ztensor.quantization.gguf_decoding import PARTS
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.model.manifest import Component, TensorObject

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "corpus/foreign/accept/gguf/blocks.json").read_text()
)
KNOWN = [block_type for block_type in BLOCK_TYPES if block_type.name in PARTS]
OTHERS = [block_type for block_type in BLOCK_TYPES if block_type.name not in PARTS]
Q4_K = GGUF_LAYOUTS["gguf.q4_k"]


def by_name(block_type: BlockType) -> str:
    return block_type.name


def tensor(name: str, rows: int = 2) -> ztensor.Tensor:
    """Return a matrix of as many rows, of one block each."""
    layout = GGUF_LAYOUTS[f"gguf.{name}"]
    data = blocks_of(name, rows).reshape(-1)
    shape = (rows, layout.block_type.elements)
    return ztensor.Tensor({"data": data}, shape=shape, format=layout.name)


def obj(length: int = 288, shape: tuple[int, ...] = (2, 256), **changes: Any) -> TensorObject:
    component = Component(**{"dtype": "u8", "offset": 64, "length": length, **changes})
    return TensorObject(shape, "gguf.q4_k", {"data": component})


def test_every_type_is_a_layout() -> None:
    assert set(GGUF_LAYOUTS) <= set(LAYOUTS)
    assert len({block_type.number for block_type in BLOCK_TYPES}) == len(BLOCK_TYPES)
    assert {block_type.name for block_type in KNOWN} == {*GOLDEN, "q8_k"}


@pytest.mark.parametrize(
    ("tensor_object", "reasons"),
    [
        (obj(), []),
        (obj(0, (0, 256)), []),
        (obj(99, encoding="zstd"), []),
        (obj(287), [Reason.SIZE_MISMATCH]),
        (obj(288, (2, 255)), [Reason.SIZE_MISMATCH]),
        (obj(288, ()), [Reason.SIZE_MISMATCH]),
        (obj(dtype="i8"), [Reason.TYPE_MISMATCH]),
        (obj(type="f8_e4m3fn"), [Reason.TYPE_MISMATCH]),
        (TensorObject((2, 256), "gguf.q4_k", {}), [Reason.COMPONENT_MISSING]),
    ],
    ids=[
        "plain",
        "no rows",
        "compressed",
        "short",
        "cut blocks",
        "scalar",
        "type",
        "logical type",
        "no data",
    ],
)
def test_what_the_manifest_alone_shows(tensor_object: TensorObject, reasons: list[Reason]) -> None:
    assert [problem.reason for problem in Q4_K.check_object(tensor_object)] == reasons


def test_the_shape_tells_how_long_the_data_is() -> None:
    more = Component("f32", 512, 8)
    both = TensorObject((3, 2, 512), "gguf.q4_k", {"data": Component("u8", 64, 1), "more": more})
    assert Q4_K.expected_length(both, "data", None) == 6 * 2 * 144
    assert Q4_K.expected_length(both, "more", None) == 8


@pytest.mark.parametrize("name", GOLDEN)
def test_floats_are_those_of_the_package_bit_for_bit(name: str) -> None:
    blocks = np.frombuffer(base64.b64decode(GOLDEN[name]["blocks"]), np.uint8)
    floats = base64.b64decode(GOLDEN[name]["floats"])
    layout = GGUF_LAYOUTS[f"gguf.{name}"]
    found = layout.to_dense(View((layout.block_type.elements,), {"data": blocks}, {}))
    assert found.astype("<f4").tobytes() == floats


@pytest.mark.parametrize("block_type", [one for one in KNOWN if one.name != "q8_k"], ids=by_name)
def test_any_bytes_give_the_floats_of_the_package(block_type: BlockType) -> None:
    """Infinite scales and NaN among them, and more blocks than are worked on at once."""
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    rows = 3 * (1 << 16) // block_type.elements + 5
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (rows, block_type.nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = package.quants.dequantize(
            blocks, package.GGMLQuantizationType(block_type.number)
        )
    view = View((rows, block_type.elements), {"data": blocks.reshape(-1)}, {})
    found = GGUF_LAYOUTS[f"gguf.{block_type.name}"].dequantize(view)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("block_type", BLOCK_TYPES, ids=by_name)
def test_sizes_are_those_of_the_package(block_type: BlockType) -> None:
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    try:
        kind = package.GGMLQuantizationType(block_type.number)
    except ValueError:
        pytest.skip(f"this package gguf does not know the number {block_type.number}")
    sizes = package.GGML_QUANT_SIZES[kind]
    assert kind.name.lower() == block_type.name
    if block_type.name == "q8_1":
        sizes = (32, 36)  # the package has 40; ggml's structure has two halves and 32 bytes
    assert sizes == (block_type.elements, block_type.nbytes)


def test_q8_k_is_a_float_and_integers() -> None:
    blocks = blocks_of("q8_k", 3)
    scale = blocks[:, :4].view("<f4")
    expected = blocks[:, 4:260].view(np.int8).astype(np.float32) * scale
    assert np.array_equal(tensor("q8_k", 3).dequantize(), expected)


@pytest.mark.parametrize("block_type", OTHERS, ids=by_name)
def test_other_types_are_kept_and_not_dequantized(block_type: BlockType) -> None:
    kept = tensor(block_type.name)
    kept.require_valid()
    with refused(UnsupportedError, Reason.UNKNOWN_TYPE, match="cannot be dequantized"):
        kept.dequantize()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_element_types_are_converted_float32(dtype: str) -> None:
    kept = tensor("q6_k", 700)
    found = kept.dequantize(dtype)
    assert found.dtype.name == dtype
    assert np.array_equal(found, kept.dequantize().astype(found.dtype))


def test_threads_do_not_change_the_result() -> None:
    kept = tensor("q4_k", 2000)
    one, two = kept.dequantize(threads=1), kept.dequantize(threads=2)
    assert np.array_equal(one.view(np.uint32), two.view(np.uint32))
    assert np.array_equal(one, kept.to_dense())


def test_no_elements_give_an_empty_array() -> None:
    kept = ztensor.Tensor({"data": np.zeros(0, np.uint8)}, shape=(0, 64), format="gguf.q8_0")
    assert kept.dequantize("float16").shape == (0, 64)


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (np.zeros(17, np.uint8), (32,)),
        (np.zeros(18, np.uint8), (31,)),
        (np.zeros(18, np.uint8), ()),
        (np.zeros(18, np.int8), (32,)),
    ],
    ids=["short", "cut block", "scalar", "type"],
)
def test_data_must_be_the_blocks_of_the_shape(data: Any, shape: tuple[int, ...]) -> None:
    kept = ztensor.Tensor({"data": data}, shape=shape, format="gguf.q4_0")
    with refused(LayoutError, Reason.SIZE_MISMATCH):
        kept.dequantize()


def test_the_element_type_must_be_a_float() -> None:
    with pytest.raises(ArgumentValueError):
        tensor("q4_0").dequantize("int32")


INDICES = [
    slice(1, 4),
    slice(None, None, -1),
    slice(5, None, -2),
    2,
    [3, 0, 3],
    slice(2, 2),
    (slice(1, 2), slice(None)),
]


@pytest.mark.parametrize("is_compressed", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_a_slice_reads_rows(index: Any, is_compressed: bool, tmp_path: Path) -> None:
    kept = tensor("q5_k", 6)
    with ztensor.Writer(tmp_path / "a.zt", compression=is_compressed) as writer:
        writer.write("a", kept)
    reader = ztensor.open(tmp_path / "a.zt")
    part: Any = reader.get_slice("a")[index]
    expected = kept.dequantize()[index].reshape(-1, 256)
    assert part.format == "gguf.q5_k"
    assert np.array_equal(part.dequantize(), expected)


def test_rows_of_three_axes_are_matrices(tmp_path: Path) -> None:
    data = blocks_of("q8_0", 24).reshape(-1)
    kept = ztensor.Tensor({"data": data}, shape=(4, 3, 64), format="gguf.q8_0")
    with ztensor.Writer(tmp_path / "a.zt") as writer:
        writer.write("a", kept)
    part: Any = ztensor.open(tmp_path / "a.zt").get_slice("a")[1:3]
    assert np.array_equal(part.dequantize(), kept.dequantize()[1:3])


def test_one_row_is_not_cut(tmp_path: Path) -> None:
    kept = ztensor.Tensor({"data": blocks_of("q8_0").reshape(-1)}, shape=(32,), format="gguf.q8_0")
    with ztensor.Writer(tmp_path / "a.zt") as writer:
        writer.write("a", kept)
    lazy: Any = ztensor.open(tmp_path / "a.zt").get_slice("a")
    assert np.array_equal(lazy[...].dequantize(), kept.dequantize())
    with pytest.raises(ArgumentValueError, match="dequantize"):
        lazy[:8]


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((2, 256), 287, "288 bytes, uint8"),
        ((2, 256), 289, "288 bytes, uint8"),
        ((2, 255), 288, "a last axis of whole blocks of 256"),
        ((), 144, "a last axis of whole blocks of 256"),
    ],
)
def test_what_the_blocks_should_be_is_told(
    shape: tuple[int, ...], size: int, expected: str
) -> None:
    view = View(shape, {"data": np.zeros(size, np.uint8)}, {})
    with pytest.raises(LayoutError, match="not the blocks") as caught:
        Q4_K.require_valid(view)
    assert caught.value.expected == expected


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("block_type", KNOWN, ids=by_name)
def test_floats_are_computed_in_float32_and_then_converted(
    block_type: BlockType, dtype: str
) -> None:
    blocks = np.random.default_rng(3).integers(0, 256, (50, block_type.nbytes), np.uint8)
    view = View((50, block_type.elements), {"data": blocks.reshape(-1)}, {})
    layout = GGUF_LAYOUTS[f"gguf.{block_type.name}"]
    with np.errstate(all="ignore"):
        expected = layout.dequantize(view).astype(dtype)
        found = layout.dequantize(view, dtype=dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
