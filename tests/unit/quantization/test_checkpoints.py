"""Named formats: published formulas against `from_*` and `quantize` of `Tensor`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.quantization.groups import Array, codes_of
from ztensor import Tensor
from ztensor.errors import ArgumentTypeError, ArgumentValueError, NotRepresentableError
from ztensor.numpy import load, save

CODES = np.arange(256, dtype=np.uint8)
FP4 = CODES[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
E4M3 = CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
E8M0 = CODES.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
# The quantiles that QLoRA publishes, appendix E.
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)


def rng_of(*seed: object) -> np.random.Generator:
    return np.random.default_rng(list(repr(seed).encode()))


def random_words(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int32") -> Array:
    raw = rng.integers(0, 256, math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def by_numpy(tensor: Tensor) -> Array:
    return tensor.dequantize()


def by_torch(tensor: Tensor) -> Array:
    module: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)
    array: Array = module.dequantize(tensor).numpy()
    return array


both = pytest.mark.parametrize("restore", [by_numpy, by_torch])


# --- Checkpoints --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("checkpoint_format", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("scattered", [False, True], ids=["neighbours", "g_idx"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq(
    restore: Callable[[Tensor], Array], bits: int, scattered: bool, checkpoint_format: str
) -> None:
    rng = rng_of(bits, scattered)
    rows, columns, group = 64, 32, 16
    qweight = random_words(rng, (rows * bits // 32, columns))
    qzeros = random_words(rng, (rows // group, columns * bits // 32))
    scales = rng.standard_normal((rows // group, columns)).astype(np.float16)
    g_idx = (np.arange(rows) // group).astype(np.int32)
    if scattered:
        g_idx = rng.permutation(g_idx)
    tensor = Tensor.from_gptq(
        qweight, qzeros, scales, g_idx, bits=bits, checkpoint_format=checkpoint_format
    )
    dense = {2: "16_per_i32", 3: "32_per_3_i32", 4: "8_per_i32", 8: "4_per_i32"}[bits]
    words = {"bits": bits, "packing": dense}
    zeros = codes_of(qzeros, words, columns)
    if checkpoint_format == "gptq":  # which stores them minus one, and wraps around
        zeros = (zeros + 1) % 2**bits
    codes = codes_of(qweight.T, words, rows).T
    expected = (codes - zeros[g_idx]).astype(np.float32) * scales[g_idx].astype(np.float32)
    assert tensor.shape == (rows, columns)
    assert ("g_idx" in tensor.components) == scattered
    assert np.shares_memory(tensor.components["packed_weight"], qweight)
    np.testing.assert_array_equal(restore(tensor), expected)


@both
@pytest.mark.parametrize("group_size", [16, 64])
def test_awq(restore: Callable[[Tensor], Array], group_size: int) -> None:
    rng = rng_of(group_size)
    qweight = random_words(rng, (64, 3))
    qzeros = random_words(rng, (64 // group_size, 3))
    scales = rng.standard_normal((64 // group_size, 24)).astype(np.float16)
    tensor = Tensor.from_awq(qweight, qzeros, scales)
    words = {"bits": 4, "packing": "8_per_i32", "order": "awq"}
    codes, zeros = codes_of(qweight, words, 24), codes_of(qzeros, words, 24)
    groups = np.arange(64) // group_size
    expected = (codes - zeros[groups]).astype(np.float32) * scales[groups].astype(np.float32)
    np.testing.assert_array_equal(restore(tensor), expected)


@both
@pytest.mark.parametrize("scale_dtype", [np.float16, np.float32])
def test_int8_rows(restore: Callable[[Tensor], Array], scale_dtype: Any) -> None:
    rng = rng_of("int8")
    weight = rng.integers(-128, 128, (7, 24)).astype(np.int8)
    absmax = (rng.random(7) * 4).astype(scale_dtype)
    tensor = Tensor.from_int8(weight, absmax)
    assert tensor.components["scales"] is absmax  # as it is in the checkpoint
    expected = weight * absmax.astype(np.float64)[:, None] / 127
    np.testing.assert_allclose(restore(tensor), expected, rtol=2e-7)


def low_first(packed: Array, block_size: int) -> Array:
    """Return the blocks of 4-bit codes, two in a byte, the first in the lower half."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, block_size)


@both
@pytest.mark.parametrize("shape", [(6, 128), (3, 2, 64), (192,), (1, 192), (1, 100)], ids=str)
@pytest.mark.parametrize("codebook", [None, np.linspace(-2, 1, 16, dtype=np.float32)])
def test_nf4(
    restore: Callable[[Tensor], Array], shape: tuple[int, ...], codebook: Array | None
) -> None:
    """The last block of a single row may end early."""
    rng = rng_of("nf4", shape)
    count = math.prod(shape)
    weight = random_words(rng, (count // 2, 1), "uint8")
    absmax = rng.random(-(-count // 64)).astype(np.float32)
    tensor = Tensor.from_nf4(weight, absmax, shape, codebook=codebook)
    codes = np.concatenate([weight >> 4, weight & 15], axis=1).reshape(shape)
    np.testing.assert_array_equal(tensor.integers(), codes)
    values = (NF4 if codebook is None else codebook)[codes.reshape(-1)]
    expected = values * absmax.repeat(64)[:count]
    np.testing.assert_array_equal(restore(tensor).reshape(-1), expected)


@both
@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "e8m0"])
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 32), (96,)], ids=str)
def test_mxfp4(restore: Callable[[Tensor], Array], shape: tuple[int, ...], as_bytes: bool) -> None:
    rng = rng_of("mxfp4", shape)
    blocks = random_words(rng, (*shape[:-1], shape[-1] // 32, 16), "uint8")
    stored = rng.integers(100, 140, blocks.shape[:-1]).astype(np.uint8)
    stored.reshape(-1)[:3] = 0, 254, 255  # a subnormal, one that overflows, NaN
    tensor = Tensor.from_mxfp4(blocks, stored if as_bytes else stored.view("float8_e8m0fnu"))
    with np.errstate(over="ignore"):
        expected = FP4[low_first(blocks, 32)] * E8M0[stored.reshape(-1, 1)]
    assert tensor.shape == shape
    np.testing.assert_array_equal(restore(tensor).reshape(-1, 32), expected)


@both
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 16), (48,)], ids=str)
def test_nvfp4(restore: Callable[[Tensor], Array], shape: tuple[int, ...]) -> None:
    rng = rng_of("nvfp4", shape)
    weight = random_words(rng, (*shape[:-1], shape[-1] // 2), "uint8")
    stored = random_words(rng, (*shape[:-1], shape[-1] // 16), "uint8")
    factor = np.float32(0.0123)
    tensor = Tensor.from_nvfp4(weight, stored, factor)
    expected = FP4[low_first(weight, 16)] * (E4M3[stored.reshape(-1, 1)] * factor)
    assert tensor.shape == shape
    np.testing.assert_array_equal(restore(tensor).reshape(-1, 16), expected)


def test_torch_tensors_are_taken_as_they_are() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    weight = torch.randint(0, 256, (4, 32), dtype=torch.uint8)
    scales = torch.rand(4, 4).to(torch.float8_e4m3fn)
    tensor = Tensor.from_nvfp4(weight, scales, torch.tensor(0.5))
    assert tensor.components["packed_weight"].ctypes.data == weight.data_ptr()
    same = Tensor.from_nvfp4(weight.numpy(), scales.view(torch.uint8).numpy(), 0.5)
    np.testing.assert_array_equal(tensor.dequantize(), same.dequantize())
    scales = torch.rand(1, 8).to(torch.bfloat16)
    words = torch.randint(-(2**31), 2**31 - 1, (4, 8), dtype=torch.int32)
    gptq = Tensor.from_gptq(words, words[:1, :1], scales)
    assert gptq.components["scales"].dtype == ml_dtypes.bfloat16


# --- Quantizing ---------------------------------------------------------------------------------


def weights(shape: tuple[int, ...] = (6, 128)) -> Array:
    array = rng_of(shape).standard_normal(shape).astype(np.float32)
    array.reshape(-1)[:32] = 0  # a block of zeros has no largest magnitude
    return array


def nearest(value: float, values: list[float]) -> int:
    """Return the code of the nearest value; of two, the even one."""
    return min(range(len(values)), key=lambda code: (abs(values[code] - value), code & 1))


RECIPES = ["gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4"]


def test_quantize_int8() -> None:
    array = weights()
    array[2] = 0
    tensor = Tensor.quantize(array, "int8")
    integers = tensor.integers()
    assert integers.dtype == np.int8
    for row, absmax, stored in zip(array, tensor.components["scales"], integers, strict=True):
        assert absmax == np.abs(row).max()
        expected = [round(float(x * np.float32(127) / absmax)) if absmax else 0 for x in row]
        assert stored.tolist() == expected


def test_quantize_mxfp4() -> None:
    array = weights()
    tensor = Tensor.quantize(array, "mxfp4")
    fp4 = FP4.tolist()
    stored = tensor.components["scales"].view(np.uint8)
    codes = tensor.integers().reshape(-1, 32)
    for block, exponent, found in zip(array.reshape(-1, 32), stored, codes, strict=True):
        largest = float(np.abs(block).max())
        if largest:
            assert exponent == math.floor(math.log2(largest)) - 2 + 127
        for x, code in zip(block.tolist(), found.tolist(), strict=True):
            best = nearest(max(-6.0, min(6.0, x / 2.0 ** (int(exponent) - 127))), fp4)
            assert fp4[code] == fp4[best]


def test_quantize_nvfp4() -> None:
    array = weights()
    tensor = Tensor.quantize(array, "nvfp4")
    fp4, fp8 = FP4.tolist(), E4M3[:127].tolist()
    (factor,) = tensor.components["global_scale"]
    assert factor == np.abs(array).max() / np.float32(6 * 448)
    stored = tensor.components["scales"].view(np.uint8)
    codes = tensor.integers().reshape(-1, 16)
    for block, scale, found in zip(array.reshape(-1, 16), stored, codes, strict=True):
        assert scale == nearest(float(np.abs(block).max() / np.float32(6) / factor), fp8)
        step = np.float32(fp8[scale]) * factor
        for x, code in zip(block, found.tolist(), strict=True):
            best = nearest(max(-6.0, min(6.0, float(x / step))) if step else 0.0, fp4)
            assert fp4[code] == fp4[best]


@pytest.mark.parametrize("block_size", [64, 32])
def test_quantize_nf4(block_size: int) -> None:
    array = weights()
    tensor = Tensor.quantize(array, "nf4", block_size=block_size)
    table = NF4.astype(float).tolist()
    codes = tensor.integers().reshape(-1, block_size)
    absmax = tensor.components["scales"]
    for block, largest, found in zip(array.reshape(-1, block_size), absmax, codes, strict=True):
        assert largest == np.abs(block).max()
        scaled = [float(x / largest) if largest else 0.0 for x in block]
        assert found.tolist() == [nearest(x, table) for x in scaled]


@pytest.mark.parametrize(
    ("recipe", "rebuilt"), [("gptq", Tensor.from_gptq), ("awq", Tensor.from_awq)]
)
def test_quantize_gptq_and_awq(recipe: str, rebuilt: Callable[..., Tensor]) -> None:
    """The stored components are those of a checkpoint."""
    array = weights((64, 24))
    tensor = Tensor.quantize(array, recipe, group_size=16)
    parts = tensor.components
    qweight = parts["packed_weight"].reshape((8, 24) if recipe == "gptq" else (64, 3))
    scales = parts["scales"].reshape(4, 24)
    again = rebuilt(qweight, parts["zeros"].reshape(4, 3), scales)
    assert again.attributes == tensor.attributes
    np.testing.assert_array_equal(again.dequantize(), tensor.dequantize())
    steps = scales.astype(np.float32).repeat(16, 0)
    assert (np.abs(tensor.dequantize() - array) <= 0.5001 * steps).all()


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_float_type_is_quantized(recipe: str, dtype: str) -> None:
    array = weights((128, 128)).astype(getattr(ml_dtypes, dtype, dtype))
    wide = Tensor.quantize(array.astype(np.float32), recipe).dequantize()
    close = np.abs(Tensor.quantize(array, recipe).dequantize() - wide).max()
    assert close <= 0.3  # a step of the coarsest


@pytest.mark.parametrize("shape", [(0, 64), (4, 0), (0,)], ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_is_quantized_to_nothing(recipe: str, shape: tuple[int, ...]) -> None:
    tensor = Tensor.quantize(np.zeros(shape, np.float32), recipe)
    assert tensor.dequantize().shape == shape


@pytest.mark.parametrize("recipe", RECIPES)
def test_files_hold_them(recipe: str) -> None:
    tensor = Tensor.quantize(weights((128, 128)), recipe)
    data = save({"w": tensor})
    found = load(data)["w"]
    assert isinstance(found, Tensor)
    assert found.attributes == tensor.attributes
    assert found.components.keys() == tensor.components.keys()
    for role, array in found.components.items():
        assert array.dtype == tensor.components[role].dtype
        assert array.tobytes() == tensor.components[role].tobytes()
    np.testing.assert_array_equal(found.dequantize(), tensor.dequantize())
    with ztensor.open(data) as reader:
        rows: Any = reader.get_slice("w")[0:128]
        np.testing.assert_array_equal(rows.dequantize(), tensor.dequantize())


@pytest.mark.parametrize("recipe", ["int8", "nf4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_rows_of_a_compressed_one(recipe: str, version: str) -> None:
    """The shared zero point, codebook and global scale go with any rows."""
    tensor = Tensor.quantize(weights(), recipe)
    try:
        data = save({"w": tensor}, version=version, compression=True)
    except NotRepresentableError:
        assert (recipe, version) == ("mxfp4", "1.1.0")  # 1.1 has no e8m0
        return
    with ztensor.open(data) as reader:
        rows: Any = reader.get_slice("w")[2:5]
    np.testing.assert_array_equal(rows.dequantize(), tensor.dequantize()[2:5])


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_least_and_the_most_bits(bits: int) -> None:
    words, zeros = np.zeros((1, 32), np.int32), np.zeros((1, bits), np.int32)
    tensor = Tensor.from_gptq(words, zeros, np.ones((1, 32), np.float16), bits=bits)
    assert tensor.shape == (32 // bits, 32)


@pytest.mark.parametrize("group_size", [-1, 1, 8, 64])
def test_a_group_is_at_most_the_matrix(group_size: int) -> None:
    groups = 64 // group_size if group_size > 0 else 1
    words, zeros = np.zeros((8, 8), np.int32), np.zeros((groups, 1), np.int32)
    scales = np.ones((groups, 8), np.float16)
    tensor = Tensor.from_gptq(words, zeros, scales, group_size=group_size)
    assert tensor.dequantize().shape == (64, 8)


@pytest.mark.parametrize(
    ("groups", "expected"), [(0, -1), (1, -1), (2, 8), (4, 4), (16, 1), (3, None), (5, None)]
)
def test_the_scales_determine_the_group_size(groups: int, expected: int | None) -> None:
    """One group is the whole axis, of any length."""
    words = np.zeros((16 if groups else 0, 1), np.int32)
    parts = words, np.zeros((groups, 1), np.int32), np.ones((groups, 8), np.float16)
    if expected is None:
        with pytest.raises(ArgumentValueError):
            Tensor.from_awq(*parts)
        return
    assert Tensor.from_awq(*parts).attributes["group_size"] == expected


@pytest.mark.parametrize(
    ("shape", "scales"),
    [((6,), [5.0]), ((1, 6), [5.0]), ((2, 3), [2.0, 5.0]), ((6, 1), [*range(6)])],
)
def test_int8_scales_rows_and_a_single_row_is_one(
    shape: tuple[int, ...], scales: list[float]
) -> None:
    array = np.arange(6, dtype=np.float32).reshape(shape)
    tensor = Tensor.quantize(array, "int8")
    assert tensor.components["scales"].tolist() == scales
    assert np.abs(tensor.dequantize() - array).max() < 0.02


def test_blocks_of_nf4_may_have_two_elements() -> None:
    array = rng_of("pairs").standard_normal((4, 12)).astype(np.float32)
    pairs = Tensor.quantize(array, "nf4", block_size=2)
    assert np.array_equal(pairs.components["scales"], np.abs(array.reshape(-1, 2)).max(axis=1))


# --- Mistakes -----------------------------------------------------------------------------------

WORDS = np.zeros((8, 8), np.int32)
HALVES = np.ones((4, 8), np.float16)
BYTES = np.zeros((4, 32), np.uint8)
MISTAKES: list[tuple[str, Callable[[], object]]] = [
    ("format", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, checkpoint_format="gptq_v3")),
    ("not a matrix", lambda: Tensor.from_gptq(WORDS.reshape(-1), WORDS, HALVES)),
    ("scales not a matrix", lambda: Tensor.from_awq(WORDS, WORDS, HALVES.reshape(-1))),
    ("bits", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, bits=0)),
    ("bits 9", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, bits=9)),
    ("bits huge", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, bits=10**9)),
    ("bits text", lambda: Tensor.from_awq(WORDS, WORDS, HALVES, bits="4")),  # type: ignore[arg-type]
    ("group size 0", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, group_size=0)),
    ("group size -2", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, group_size=-2)),
    ("group size 65", lambda: Tensor.from_gptq(WORDS, WORDS[:1], HALVES[:1], group_size=65)),
    ("uneven groups", lambda: Tensor.from_gptq(WORDS, WORDS[:3], HALVES[:3])),
    ("qzeros", lambda: Tensor.from_gptq(WORDS, WORDS[:3], HALVES)),
    ("scales", lambda: Tensor.from_gptq(WORDS, WORDS[:4, :1], HALVES[:, :7])),
    ("floats packed", lambda: Tensor.from_gptq(HALVES, WORDS, HALVES)),
    ("g_idx", lambda: Tensor.from_gptq(WORDS, WORDS[:4, :1], HALVES, np.full(64, 4))),
    ("g_idx count", lambda: Tensor.from_gptq(WORDS, WORDS[:4, :1], HALVES, np.zeros(9, int))),
    ("int8 of floats", lambda: Tensor.from_int8(HALVES, np.ones(4, np.float32))),
    ("int8 scales", lambda: Tensor.from_int8(np.zeros((4, 8), np.int8), np.ones(3, np.float32))),
    ("int8 scalar", lambda: Tensor.from_int8(np.int8(3), np.float32(1))),
    ("nf4 across rows", lambda: Tensor.from_nf4(BYTES, np.ones(4, np.float32), (8, 32))),
    ("nf4 scalar", lambda: Tensor.from_nf4(BYTES, np.ones(4, np.float32), ())),
    ("nf4 block", lambda: Tensor.from_nf4(BYTES, np.ones(4, np.float32), (4, 64), block_size=0)),
    ("nf4 codebook", lambda: Tensor.from_nf4(
        BYTES, np.ones(4, np.float32), (4, 64), codebook=np.ones(15, np.float32))),
    ("mxfp4 scale type", lambda: Tensor.from_mxfp4(BYTES, np.ones((4, 2), np.float32))),
    ("mxfp4 counts", lambda: Tensor.from_mxfp4(BYTES, np.ones((4, 3), np.uint8))),
    ("mxfp4 scalar", lambda: Tensor.from_mxfp4(BYTES, np.uint8(1))),
    ("mxfp4 shape", lambda: Tensor.from_mxfp4(BYTES, np.ones((4, 2), np.uint8), shape=(4, 65))),
    ("mxfp4 words", lambda: Tensor.from_mxfp4(WORDS, np.ones((4, 2), np.uint8))),
    ("nvfp4 global", lambda: Tensor.from_nvfp4(BYTES, np.ones((4, 4), np.uint8), [1.0, 2.0])),
    ("nvfp4 scale type", lambda: Tensor.from_nvfp4(BYTES, HALVES[:, :4], 1.0)),
    ("recipe", lambda: Tensor.quantize(HALVES, "marlin")),
    ("option", lambda: Tensor.quantize(HALVES, "mxfp4", bits=4)),
    ("option unknown", lambda: Tensor.quantize(HALVES, colour="green")),
    *((f"block size {size!r}", partial(Tensor.quantize, BYTES, "nf4", block_size=size))
      for size in (-2, 0, 1, 3, 7, True, 2.0, "8")),
]  # fmt: skip


@pytest.mark.parametrize("call", [call for _, call in MISTAKES], ids=[name for name, _ in MISTAKES])
def test_wrong_arguments_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        call()
    assert len(str(caught.value)) < 400


def test_arguments_must_be_arrays() -> None:
    with pytest.raises(ArgumentTypeError):
        Tensor.from_gptq(object(), WORDS, HALVES)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("recipe", ["int8", "nf4", "mxfp4", "nvfp4"])
def test_numbers_that_cannot_be_quantized(recipe: str, value: float) -> None:
    array = np.zeros((2, 64))
    array[1, 5] = value
    with pytest.raises(NotRepresentableError):
        Tensor.quantize(array, recipe)


@pytest.mark.parametrize("recipe", ["nf4", "mxfp4", "nvfp4"])
def test_blocks_are_whole(recipe: str) -> None:
    with pytest.raises(NotRepresentableError):
        Tensor.quantize(np.zeros((4, 40), np.float32), recipe)


def test_a_scalar_is_not_quantized() -> None:
    for recipe in RECIPES:
        with pytest.raises(NotRepresentableError):
            Tensor.quantize(np.float32(1), recipe)
