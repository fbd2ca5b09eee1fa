"""The quantized layouts of 2.x against loops over their definition, one element after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import LayoutError, ManifestError, Reason, UnsupportedError
from ztensor.layout.base import View
from ztensor.layout.group_profiles import MX, QUANT_GROUP
from ztensor.testing.builder_2 import File2

SPEC = Path(__file__).parents[2] / "corpus2" / "spec"


def names_of(file: str) -> list[tuple[str, str]]:
    with ztensor.open(SPEC / file) as reader:
        return [(file, name) for name in reader]


QUANTIZED = names_of("quant_group.zt") + names_of("mx.zt")


def codes_of(words: np.ndarray[Any, Any], bits: int, order: str) -> list[int]:
    codes = []
    per_word = words.itemsize * 8 // bits
    for word in words.view(f"u{words.itemsize}").tolist():
        row = [word >> bits * place & (1 << bits) - 1 for place in range(per_word)]
        codes += row if order == "lsb_first" else row[::-1]
    return codes


def slowly(tensor: ztensor.Tensor) -> np.ndarray[Any, Any]:
    """Return what a tensor stands for, element by element."""
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
        values = codes_of(parts["data"], attributes["bits"], packing["order"])
        zeros = np.full(divided, point.get("value", 0), np.float64)
        if point["form"] == "tensor" and point["packing"] == "plain":
            zeros = parts["zeros"].astype(np.float64).reshape(divided)
        elif point["form"] == "tensor":
            some = codes_of(parts["zeros"], attributes["bits"], packing["order"])
            zeros = np.array(some, np.float64).reshape(divided)
    result = np.zeros(shape)
    for number, place in enumerate(np.ndindex(shape)):
        group = list(place)
        group[axis] //= size
        result[place] = (values[number] - zeros[tuple(group)]) * scales[tuple(group)]
    return result


@pytest.mark.parametrize(("file", "name"), QUANTIZED)
def test_it_stands_for_what_the_text_says(file: str, name: str) -> None:
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


def test_words_may_run_across_lines_of_the_last_axis_alone() -> None:
    words = np.arange(1, 16, dtype=np.uint16) * 4099
    arrays: dict[str, Any] = {"data": words, "scales": np.linspace(1, 2, 20, dtype=np.float32)}
    rows = View((10, 6), arrays, group(group_size=3))
    codes = codes_of(words, 4, "lsb_first")
    expected = np.array(codes).reshape(10, 2, 3) * arrays["scales"].reshape(10, 2, 1)
    np.testing.assert_allclose(QUANT_GROUP.dequantize(rows), expected.reshape(10, 6), rtol=1e-6)
    columns = View(
        (10, 6), arrays | {"scales": np.ones(12, np.float32)}, group(axis=0, group_size=5)
    )
    with pytest.raises(UnsupportedError):
        QUANT_GROUP.dequantize(columns)


def test_blocks_of_mx_lie_along_any_axis() -> None:
    data = np.arange(-12, 12, dtype=np.int8)
    scales = (127 + np.arange(6)).astype(np.uint8).view("float8_e8m0fnu")
    view = View((4, 2, 3), {"data": data, "scales": scales[:6]}, {"scale_form": "e8m0_exponent"})
    middle = View(
        view.shape, {"data": data, "scales": np.resize(scales, 12)}, dict(view.attributes)
    )
    middle.attributes["block_size"], middle.attributes["axis"] = 2, 1  # type: ignore[index]
    expected = data.reshape(4, 1, 2, 3) * np.exp2(np.resize(np.arange(6.0), 12)).reshape(4, 1, 1, 3)
    np.testing.assert_array_equal(MX.dequantize(middle), expected.reshape(4, 2, 3))


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
    with pytest.raises(LayoutError) as caught:
        QUANT_GROUP.require_valid(View((4, 8), arrays, attributes))
    assert caught.value.reason is Reason.QUANTIZATION
    file = File2()
    parts = {role: file.part(array) for role, array in arrays.items()}
    entry = {"shape": [4, 8], "layout": "zt.quant_group/1", "parts": parts}
    with pytest.raises(ManifestError) as found:
        ztensor.open(file.seal({"objects": {"q": entry | {"attributes": attributes}}}))
    assert found.value.reason is Reason.QUANTIZATION


@pytest.mark.parametrize("zero", [-(1 << 31), (1 << 31) - 1])
def test_a_zero_point_may_be_any_integer_of_32_bits(zero: int) -> None:
    arrays: dict[str, Any] = {"data": np.zeros(8, np.uint16), "scales": np.ones(4, np.float32)}
    view = View((4, 8), arrays, group(zero_point={"form": "implied", "value": zero}))
    QUANT_GROUP.require_valid(view)
    assert (QUANT_GROUP.dequantize(view) == np.float32(-zero)).all()
