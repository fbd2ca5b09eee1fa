"""The quantized layouts of 2.x against loops over their definition, one element after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.quantization.groups import codes_of
from ztensor.errors import LayoutError, ManifestError, Reason
from ztensor.ext import LAYOUTS, Component, TensorObject, View
from ztensor.testing.builder_2 import File2

QUANT_GROUP: Any = LAYOUTS["zt.quant_group/1"]
MX: Any = LAYOUTS["zt.mx/1"]
SPEC = Path(__file__).parents[2] / "corpus2" / "spec"


def names_of(file: str) -> list[tuple[str, str]]:
    with ztensor.open(SPEC / file) as reader:
        return [(file, name) for name in reader]


QUANTIZED = names_of("quant_group.zt") + names_of("mx.zt")


def slowly(tensor: ztensor.Tensor) -> np.ndarray[Any, Any]:
    """Return the floats of a tensor, element by element."""
    attributes: dict[str, Any] = dict(tensor.attributes)
    parts, shape = tensor.components, tuple(tensor.shape)
    scales = parts["scales"].astype(np.float64)
    axis = attributes.get("axis", len(shape) - 1)
    size = attributes.get("group_size", attributes.get("block_size")) or 1
    divided = list(shape)
    divided[axis] //= size
    scales = scales.reshape(divided)
    if tensor.format == "zt.mx/1":
        values = parts["data"].astype(np.float64).tolist()
        zeros = np.zeros(divided)
    else:
        packing, point = attributes["packing"], attributes["zero_point"]
        order = {"lsb_first": "sequential", "msb_first": "reversed"}[packing["order"]]
        name = f"{packing['per_word']}_per_{packing['word']}"
        words = {"bits": attributes["bits"], "packing": name, "order": order}
        values = codes_of(parts["data"].reshape(1, -1), words, int(np.prod(shape)))[0].tolist()
        zeros = np.full(divided, point.get("value", 0), np.float64)
        if point["form"] == "tensor" and point["packing"] == "plain":
            zeros = parts["zeros"].astype(np.float64).reshape(divided)
        elif point["form"] == "tensor":
            zeros = codes_of(parts["zeros"].reshape(1, -1), words, scales.size).reshape(divided)
    result = np.zeros(shape)
    for number, place in enumerate(np.ndindex(shape)):
        group = list(place)
        group[axis] //= size
        result[place] = (values[number] - zeros[tuple(group)]) * scales[tuple(group)]
    return result


@pytest.mark.parametrize(("file", "name"), QUANTIZED)
def test_dequantized_by_the_specification(file: str, name: str) -> None:
    with ztensor.open(SPEC / file) as reader:
        tensor = reader.read(name)
        expected = slowly(tensor)
        np.testing.assert_allclose(tensor.dequantize(), expected, rtol=1e-6)
        np.testing.assert_allclose(tensor.to_dense(), expected, rtol=1e-6)
        assert tensor.dequantize("float16").dtype == np.float16
        part: Any = reader.get_slice(name)
        unit = part.row_unit
        for start in range(0, len(expected), unit):
            stop = min(start + unit, len(expected))
            found = part[start:stop]
            np.testing.assert_allclose(found.dequantize(), expected[start:stop], rtol=1e-6)
        assert reader.verify([name]).outcome == "ok"


@pytest.mark.parametrize(("file", "name"), QUANTIZED)
def test_torch_gives_the_same(file: str, name: str) -> None:
    pytest.importorskip("torch")
    from ztensor.torch import dequantize

    with ztensor.open(SPEC / file) as reader:
        tensor = reader.read(name)
        np.testing.assert_array_equal(dequantize(tensor).numpy(), tensor.dequantize())


def group(**changes: Any) -> dict[str, Any]:
    return {
        "axis": 1,
        "bits": 4,
        "group_size": 8,
        "packing": {"word": "u16", "order": "lsb_first", "per_word": 4},
        "scale_form": "f32_factors",
        "zero_point": {"form": "none"},
    } | changes


@pytest.mark.parametrize("zeros", ["none", "implied", "plain", "same_as_data"])
@pytest.mark.parametrize("order", ["lsb_first", "msb_first"])
@pytest.mark.parametrize(("bits", "word"), [(2, "u8"), (4, "u16"), (4, "u32"), (8, "u64")])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((16, 6), 1), ((16, 6), 0), ((4, 4, 6), 0), ((4, 4, 6), 1), ((4, 4, 6), 2), ((8, 2, 3, 2), 1)],
    ids=str,
)
def test_words_may_run_across_lines(
    shape: tuple[int, ...], axis: int, bits: int, word: str, order: str, zeros: str, tmp_path: Path
) -> None:
    random, count = np.random.default_rng(1), int(np.prod(shape))
    width, per_word = int(word[1:]) // 8, int(word[1:]) // bits

    def words(number: int) -> Any:
        return random.integers(0, 256, number // per_word * width, np.uint8).view(f"u{width}")

    size = 2 if shape[axis] % 2 == 0 else 1
    if zeros == "same_as_data" and count // size % per_word:
        pytest.skip("the zero points do not fill whole words")
    arrays = {"data": words(count), "scales": random.uniform(1, 2, count // size).astype("f4")}
    point: dict[str, Any] = {"form": zeros}
    if zeros == "implied":
        point["value"] = 3
    elif zeros != "none":
        point = {"form": "tensor", "packing": zeros}
        arrays["zeros"] = words(count // size)
        if zeros == "plain":
            arrays["zeros"] = random.integers(0, 9, count // size, np.int16)
    packing = {"word": word, "order": order, "per_word": per_word}
    attributes = group(bits=bits, axis=axis, group_size=size, packing=packing, zero_point=point)
    tensor = ztensor.Tensor(arrays, shape=shape, format="zt.quant_group/1", attributes=attributes)
    expected = slowly(tensor)
    ztensor.numpy.save_file({"w": tensor}, tmp_path / "w.zt", version="2.1")
    with ztensor.open(tmp_path / "w.zt") as reader:
        np.testing.assert_allclose(reader.read("w").dequantize(), expected, rtol=1e-6)
        part: Any = reader.get_slice("w")
        for start in range(0, shape[0], part.row_unit):
            stop = min(start + part.row_unit, shape[0])
            np.testing.assert_allclose(
                part[start:stop].dequantize(), expected[start:stop], rtol=1e-6
            )
    ztensor.convert(tmp_path / "w.zt", tmp_path / "new.zt", dequantize=True, check=True)
    found = ztensor.numpy.load_file(tmp_path / "new.zt")["w"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_blocks_of_mx_run_along_any_axis() -> None:
    data = np.arange(-12, 12, dtype=np.int8)
    exponents = np.resize(np.arange(6), 12)
    scales = (127 + exponents).astype(np.uint8).view("float8_e8m0fnu")
    attributes = {"scale_form": "e8m0_exponent", "block_size": 2, "axis": 1}
    view = View((4, 2, 3), {"data": data, "scales": scales}, attributes)
    expected = data.reshape(4, 1, 2, 3) * np.exp2(exponents).reshape(4, 1, 1, 3)
    np.testing.assert_array_equal(MX.dequantize(view), expected.reshape(4, 2, 3))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        group(bits=3, packing={"word": "u16", "order": "lsb_first", "per_word": 5}),
        group(bits=True),
        group(axis=2),
        group(axis=-1),
        group(group_size=7),
        group(packing={"word": "u16", "order": "lsb_first", "per_word": 8}),
        group(packing=[]),
        group(scale_form="f8"),
        group(scale_form="e8m0_exponent"),
        group(zero_point={"form": "tensor", "packing": "plain"}),
        group(zero_point={"form": "implied"}),
        group(zero_point={"form": "implied", "value": 1 << 31}),
        group(zero_point={"form": "implied", "value": -(1 << 31) - 1}),
        group(zero_point=None),
    ],
    ids=str,
)
def test_an_object_that_breaks_a_rule_is_refused_with_the_file(attributes: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {"data": np.zeros(8, np.uint16), "scales": np.ones(4, np.float32)}
    assert QUANT_GROUP.dequantize(View((4, 8), arrays, group())).shape == (4, 8)
    with refused(LayoutError, Reason.QUANTIZATION):
        QUANT_GROUP.require_valid(View((4, 8), arrays, attributes))
    file = File2()
    parts = {role: file.part(array) for role, array in arrays.items()}
    entry = {"shape": [4, 8], "layout": "zt.quant_group/1", "parts": parts}
    with refused(ManifestError, Reason.QUANTIZATION):
        ztensor.open(file.seal({"objects": {"q": entry | {"attributes": attributes}}}))


@pytest.mark.parametrize("zero", [-(1 << 31), (1 << 31) - 1])
def test_a_zero_point_may_be_any_integer_of_32_bits(zero: int) -> None:
    arrays: dict[str, Any] = {"data": np.zeros(8, np.uint16), "scales": np.ones(4, np.float32)}
    view = View((4, 8), arrays, group(zero_point={"form": "implied", "value": zero}))
    QUANT_GROUP.require_valid(view)
    assert (QUANT_GROUP.dequantize(view) == np.float32(-zero)).all()


WORDS, FACTORS = np.zeros(8, np.uint16), np.ones(4, np.float32)
PLAIN = {"form": "tensor", "packing": "plain"}
SAME = {"form": "tensor", "packing": "same_as_data"}
EXPONENTS = np.full(4, 127, np.uint8).view("float8_e8m0fnu")


GROUP_PARTS: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({}, {}, None),
    ({"data": WORDS.view(np.int16)}, {}, None),
    ({"data": WORDS[:7]}, {}, "data"),
    ({"data": np.zeros(9, np.uint16)}, {}, "data"),
    ({"data": WORDS.view(np.uint32)}, {}, "data"),
    ({"scales": FACTORS[:3]}, {}, "scales"),
    ({"scales": np.ones(5, np.float32)}, {}, "scales"),
    ({"scales": FACTORS.astype(np.float64)}, {}, None),
    ({"scales": FACTORS.astype(np.int32)}, {}, "scales"),
    ({"scales": EXPONENTS}, {}, "scales"),
    ({"scales": EXPONENTS}, {"scale_form": "e8m0_exponent"}, None),
    ({"scales": EXPONENTS[:3]}, {"scale_form": "e8m0_exponent"}, "scales"),
    ({}, {"scale_form": "e8m0_exponent"}, "scales"),
    ({"zeros": FACTORS}, {}, "zeros"),
    ({"zeros": FACTORS}, {"zero_point": PLAIN}, None),
    ({"zeros": FACTORS[:3]}, {"zero_point": PLAIN}, "zeros"),
    ({"zeros": np.zeros(4, np.int8)}, {"zero_point": PLAIN}, None),
    ({"zeros": np.zeros(4, np.bool_)}, {"zero_point": PLAIN}, "zeros"),
    ({"zeros": WORDS[:1]}, {"zero_point": SAME}, None),
    ({"zeros": WORDS[:2]}, {"zero_point": SAME}, "zeros"),
    ({"zeros": FACTORS}, {"zero_point": SAME}, "zeros"),
]
MX_PARTS: list[tuple[Any, Any, str | None]] = [
    (np.zeros(32, np.int8), EXPONENTS, None),
    (np.zeros(31, np.int8), EXPONENTS, "data"),
    (np.zeros(32, np.uint8), EXPONENTS, "data"),
    (np.zeros(32, np.int8), EXPONENTS[:3], "scales"),
    (np.zeros(32, np.int8), FACTORS, "scales"),
    (np.zeros(32, ml_dtypes.float4_e2m1fn), EXPONENTS, None),
    (np.zeros(30, ml_dtypes.float4_e2m1fn), EXPONENTS, "data"),
]
BLOCKS = {"block_size": 8, "scale_form": "e8m0_exponent"}


@pytest.mark.parametrize(
    ("layout", "parts", "attributes", "wrong"),
    [
        *((QUANT_GROUP, {"data": WORDS, "scales": FACTORS, **parts}, group(**changes), wrong)
          for parts, changes, wrong in GROUP_PARTS),
        *((MX, {"data": data, "scales": scales}, BLOCKS, wrong)
          for data, scales, wrong in MX_PARTS),
    ],
)  # fmt: skip
def test_components_have_the_sizes_and_types_of_the_attributes(
    layout: Any, parts: dict[str, Any], attributes: dict[str, Any], wrong: str | None
) -> None:
    view = View((4, 8), parts, attributes)
    if wrong is None:
        layout.require_valid(view)
        return
    with refused(LayoutError, Reason.QUANTIZATION) as caught:
        layout.require_valid(view)
    assert caught.value.component == wrong


@pytest.mark.parametrize(("size", "found"), [(None, "nothing"), (1, "1"), ("2", "'2'")])
def test_the_error_names_the_value(size: object, found: str) -> None:
    attributes = {"scale_form": "e8m0_exponent"} | ({} if size is None else {"block_size": size})
    view = View((4, 8), {"data": np.zeros(32, np.int8), "scales": EXPONENTS}, attributes)
    with pytest.raises(LayoutError) as caught:
        MX.require_valid(view)
    assert caught.value.found == found
    assert caught.value.expected == "2 or more, a divisor of 8"


@pytest.mark.parametrize(
    ("length", "scales", "count"), [(16, 16, 0), (None, None, 0), (15, None, 1), (None, 15, 1)]
)
def test_unknown_lengths_are_no_problem(length: int | None, scales: int | None, count: int) -> None:
    parts = {
        "data": Component("u16", 64, 9, encoding="zstd", decoded_length=length),
        "scales": Component("f32", 64, 9, encoding="zstd", decoded_length=scales),
    }
    problems = QUANT_GROUP.check_object(TensorObject((4, 8), QUANT_GROUP.name, parts, group()))
    assert [problem.component for problem in problems] == (
        ["data" if scales is None else "scales"] * count
    )
