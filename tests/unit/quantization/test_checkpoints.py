"""Named formats: what their projects publish, one element at a time, against what we make of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import ztensor
from ztensor import Tensor
from ztensor.errors import ArgumentTypeError, ArgumentValueError, NotRepresentableError
from ztensor.numpy import load, save
from ztensor.quantization.checkpoints import NF4

if TYPE_CHECKING:
    Array = NDArray[Any]


def rng_of(*seed: object) -> np.random.Generator:
    return np.random.default_rng(list(repr(seed).encode()))


def random_words(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int32") -> Array:
    raw = rng.integers(0, 256, math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def by_numpy(tensor: Tensor) -> Array:
    return tensor.dequantize()


def by_torch(tensor: Tensor) -> Array:
    module: Any = pytest.importorskip("ztensor.torch", reason="PyTorch is not installed")
    array: Array = module.dequantize(tensor).numpy()
    return array


both = pytest.mark.parametrize("restore", [by_numpy, by_torch])


# --- The formulas -------------------------------------------------------------------------------


def field(words: Array, bits: int, index: int) -> int:
    """Return an integer of a run of 32-bit words, lowest bits first."""
    run = sum((int(word) & 0xFFFFFFFF) << (32 * i) for i, word in enumerate(words))
    return run >> (bits * index) & ((1 << bits) - 1)


def gptq_weight(
    qweight: Array, qzeros: Array, scales: Array, g_idx: Array, bits: int, minus_one: bool
) -> Array:
    """Return w = scale * (q - zero); the first format stores zero - 1, and wraps around."""
    weight = np.empty((len(g_idx), scales.shape[1]), np.float32)
    for row, group in enumerate(g_idx):
        for column in range(scales.shape[1]):
            zero = field(qzeros[group], bits, column)
            if minus_one:
                zero = (zero + 1) & (2**bits - 1)
            q = field(qweight[:, column], bits, row)
            weight[row, column] = np.float32(q - zero) * np.float32(scales[group, column])
    return weight


def awq_weight(qweight: Array, qzeros: Array, scales: Array, group_size: int) -> Array:
    """Return w = (q - zero) * scale; nibble i of a word is column AWQ_ORDER[i]."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    weight = np.empty((len(qweight), scales.shape[1]), np.float32)
    for row in range(len(qweight)):
        group = row // group_size
        for word in range(qweight.shape[1]):
            for nibble, element in enumerate(order):
                column = word * 8 + element
                q = field(qweight[row, word : word + 1], 4, nibble)
                zero = field(qzeros[group, word : word + 1], 4, nibble)
                weight[row, column] = np.float32(q - zero) * np.float32(scales[group, column])
    return weight


def e2m1(code: int) -> float:
    """Return sign, two bits of exponent (bias 1), one of mantissa."""
    sign, exponent, mantissa = -1 if code & 8 else 1, code >> 1 & 3, code & 1
    value = mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return sign * value


def e4m3(code: int) -> float:
    """Return sign, four bits of exponent (bias 7), three of mantissa; all ones are NaN."""
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def e8m0(code: int) -> float:
    return math.nan if code == 255 else 2.0 ** (code - 127)


def low_first(packed: Array) -> list[int]:
    return [code for byte in packed.reshape(-1).tolist() for code in (byte & 15, byte >> 4)]


def test_the_decoders_are_those_of_ml_dtypes() -> None:
    codes = np.arange(256, dtype=np.uint8)
    for decoder, name, count in ((e2m1, "float4_e2m1fn", 16), (e4m3, "float8_e4m3fn", 256),
                                 (e8m0, "float8_e8m0fnu", 256)):  # fmt: skip
        known = codes[:count].view(getattr(ml_dtypes, name)).astype(np.float64)
        np.testing.assert_array_equal([decoder(int(code)) for code in codes[:count]], known)


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
    expected = gptq_weight(qweight, qzeros, scales, g_idx, bits, checkpoint_format == "gptq")
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
    assert tensor.shape == (64, 24)
    np.testing.assert_array_equal(restore(tensor), awq_weight(qweight, qzeros, scales, group_size))


@both
@pytest.mark.parametrize("scale_dtype", [np.float16, np.float32])
def test_int8_rows(restore: Callable[[Tensor], Array], scale_dtype: Any) -> None:
    rng = rng_of("int8")
    weight = rng.integers(-128, 128, (7, 24)).astype(np.int8)
    absmax = (rng.random(7) * 4).astype(scale_dtype)
    tensor = Tensor.from_int8(weight, absmax)
    expected = [
        [int(q) * float(largest) / 127 for q in row]
        for row, largest in zip(weight, absmax, strict=True)
    ]
    assert tensor.components["scales"] is absmax  # as it is in the checkpoint
    np.testing.assert_allclose(restore(tensor), expected, rtol=2e-7)


@both
@pytest.mark.parametrize("shape", [(6, 128), (3, 2, 64), (192,), (1, 192)], ids=str)
@pytest.mark.parametrize("codebook", [None, np.linspace(-2, 1, 16, dtype=np.float32)])
def test_nf4(
    restore: Callable[[Tensor], Array], shape: tuple[int, ...], codebook: Array | None
) -> None:
    rng = rng_of("nf4", shape)
    count = math.prod(shape)
    weight = random_words(rng, (count // 2, 1), "uint8")
    absmax = rng.random(count // 64).astype(np.float32)
    tensor = Tensor.from_nf4(weight, absmax, shape, codebook=codebook)
    table = NF4 if codebook is None else codebook
    codes = [code for byte in weight[:, 0].tolist() for code in (byte >> 4, byte & 15)]
    expected = [np.float32(table[code]) * absmax[i // 64] for i, code in enumerate(codes)]
    np.testing.assert_array_equal(restore(tensor).reshape(-1), expected)
    assert tensor.shape == shape


@both
@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "e8m0"])
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 32), (96,)], ids=str)
def test_mxfp4(restore: Callable[[Tensor], Array], shape: tuple[int, ...], as_bytes: bool) -> None:
    rng = rng_of("mxfp4", shape)
    blocks = random_words(rng, (*shape[:-1], shape[-1] // 32, 16), "uint8")
    stored = rng.integers(100, 140, blocks.shape[:-1]).astype(np.uint8)
    stored.reshape(-1)[:3] = 0, 254, 255  # a subnormal, one that overflows, NaN
    scales = stored if as_bytes else stored.view(ml_dtypes.float8_e8m0fnu)
    tensor = Tensor.from_mxfp4(blocks, scales)
    values = [
        e2m1(code) * e8m0(int(stored.reshape(-1)[i // 32]))
        for i, code in enumerate(low_first(blocks))
    ]
    assert tensor.shape == shape
    with np.errstate(over="ignore"):
        expected = np.array(values).astype(np.float32)
    np.testing.assert_array_equal(restore(tensor).reshape(-1), expected)


@both
@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 16), (48,)], ids=str)
def test_nvfp4(restore: Callable[[Tensor], Array], shape: tuple[int, ...]) -> None:
    rng = rng_of("nvfp4", shape)
    weight = random_words(rng, (*shape[:-1], shape[-1] // 2), "uint8")
    stored = random_words(rng, (*shape[:-1], shape[-1] // 16), "uint8")
    factor = np.float32(0.0123)
    tensor = Tensor.from_nvfp4(weight, stored, factor)
    values = [
        np.float32(e2m1(code)) * (np.float32(e4m3(int(stored.reshape(-1)[i // 16]))) * factor)
        for i, code in enumerate(low_first(weight))
    ]
    assert tensor.shape == shape
    np.testing.assert_array_equal(restore(tensor).reshape(-1), np.array(values, np.float32))


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
    """Return the code of the nearest value; of two, the one whose last bit is 0."""
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
    fp4 = [e2m1(code) for code in range(16)]
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
    fp4, fp8 = [e2m1(code) for code in range(16)], [e4m3(code) for code in range(127)]
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
    """What is stored is what their checkpoints hold."""
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


@pytest.mark.parametrize("bits", [0, 1, 2, 4, 8, 9])
def test_the_least_and_the_most_bits(bits: int) -> None:
    rows = 32 // max(bits, 1)
    words = np.zeros((1, 32), np.int32)
    zeros = np.zeros((1, max(bits, 1)), np.int32)
    if 1 <= bits <= 8:
        tensor = Tensor.from_gptq(words, zeros, np.ones((1, 32), np.float16), bits=bits)
        assert tensor.shape == (rows, 32)
    else:
        with pytest.raises(ArgumentValueError, match="bits"):
            Tensor.from_gptq(words, zeros, np.ones((1, 32), np.float16), bits=bits)


@pytest.mark.parametrize("group_size", [-2, -1, 0, 1, 8, 64, 65])
def test_a_group_is_no_longer_than_the_matrix(group_size: int) -> None:
    groups = 64 // group_size if group_size > 0 else 1
    words, zeros = np.zeros((8, 8), np.int32), np.zeros((max(groups, 1), 1), np.int32)
    scales = np.ones((len(zeros), 8), np.float16)
    if group_size == -1 or 1 <= group_size <= 64:
        tensor = Tensor.from_gptq(words, zeros, scales, group_size=group_size)
        assert tensor.dequantize().shape == (64, 8)
    else:
        with pytest.raises(ArgumentValueError, match="group_size"):
            Tensor.from_gptq(words, zeros, scales, group_size=group_size)


# --- Mistakes -----------------------------------------------------------------------------------

WORDS = np.zeros((8, 8), np.int32)
HALVES = np.ones((4, 8), np.float16)
BYTES = np.zeros((4, 32), np.uint8)
MISTAKES: list[tuple[str, Callable[[], object]]] = [
    ("format", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, checkpoint_format="gptq_v3")),
    ("not a matrix", lambda: Tensor.from_gptq(WORDS.reshape(-1), WORDS, HALVES)),
    ("scales not a matrix", lambda: Tensor.from_awq(WORDS, WORDS, HALVES.reshape(-1))),
    ("bits", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, bits=0)),
    ("bits huge", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, bits=10**9)),
    ("bits text", lambda: Tensor.from_awq(WORDS, WORDS, HALVES, bits="4")),  # type: ignore[arg-type]
    ("group size 0", lambda: Tensor.from_gptq(WORDS, WORDS, HALVES, group_size=0)),
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
    ("block size", lambda: Tensor.quantize(HALVES, "nf4", block_size=7)),
    ("block size text", lambda: Tensor.quantize(HALVES, "nf4", block_size="8")),
]  # fmt: skip


@pytest.mark.parametrize("call", [call for _, call in MISTAKES], ids=[name for name, _ in MISTAKES])
def test_what_does_not_fit_is_the_callers_mistake(call: Callable[[], object]) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        call()
    assert len(str(caught.value)) < 400


def test_what_is_no_array() -> None:
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
    with pytest.raises(NotRepresentableError, match="pad"):
        Tensor.quantize(np.zeros((4, 40), np.float32), recipe)


def test_a_scalar_is_not_quantized() -> None:
    for recipe in RECIPES:
        with pytest.raises(NotRepresentableError):
            Tensor.quantize(np.float32(1), recipe)
