from __future__ import annotations

from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.refusals import refused
from ztensor.errors import LimitError, ManifestError, NotRepresentableError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import EMITTERS
from ztensor.spec.container.framing import Container, Frame
from ztensor.spec.container.v0_1 import parse_manifest
from ztensor.spec.model.manifest import Component, Manifest, TensorObject

END = 4096
ABSENT = object()


def parse(index: bytes, limits: Limits = DEFAULT_LIMITS) -> Manifest:
    frame = Frame(Container.V0_1, END, len(index), END + len(index) + 8)
    return parse_manifest(index, frame, Budget(limits, frame.file_size))


def entry(**changes: Any) -> dict[str, Any]:
    """Return a good entry, with some fields changed; ABSENT takes one away."""
    fields = {
        "name": "w",
        "offset": 64,
        "size": 8,
        "dtype": "float32",
        "shape": [2],
        "encoding": "raw",
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not ABSENT}


def dense(*, attributes: dict[str, Any] | None = None, **component: Any) -> TensorObject:
    fields = {"dtype": "f32", "offset": 64, "length": 8, "nonzero_is_true": True, **component}
    return TensorObject((2,), "dense", {"data": Component(**fields)}, attributes)


def only(**changes: Any) -> TensorObject:
    (found,) = parse(cbor2.dumps([entry(**changes)])).objects.values()
    return found


# --- Writing ------------------------------------------------------------------------------------

OBJECTS = {
    "z": dense(),
    "a": dense(encoding="zstd", digest="crc32c:0x00000001", attributes={"k": [1, {"a": None}]}),
    "": dense(dtype="bool", length=2),
    "é\0": dense(byte_order="big"),
}


@pytest.mark.parametrize("count", range(len(OBJECTS) + 1))
def test_what_is_emitted_is_parsed(count: int) -> None:
    manifest = Manifest("0.1.0", dict(list(OBJECTS.items())[:count]))
    emitted = EMITTERS["0.1.0"]().emit(manifest, END)
    index, length = emitted[:-8], emitted[-8:]
    assert int.from_bytes(length, "little") == len(index)
    assert parse(index) == manifest
    assert list(parse(index).objects) == list(manifest.objects)  # the order of writing is kept


DATA = Component("u8", 0, 0)


@pytest.mark.parametrize(
    "tensor_object",
    [
        TensorObject((1,), "sparse_coo", {"values": DATA, "coords": DATA}),
        TensorObject((1,), "mine", {"data": DATA}),
        TensorObject((1,), "dense", {"data": DATA, "more": DATA}),
        TensorObject((1,), "dense", {"data": DATA._replace(type="f8_e5m2")}),
        TensorObject((1,), "dense", {"data": DATA}, {"name": "x"}),
        TensorObject((1,), "dense", {"data": DATA}, {1: "x"}),  # type: ignore[dict-item]
        TensorObject((1,), "dense", {"data": DATA}, {"a": object()}),
        TensorObject((2**64,), "dense", {"data": DATA}),
    ],
    ids=["sparse", "layout", "components", "type", "taken", "key", "value", "shape"],
)
def test_what_the_version_cannot_say_is_refused(tensor_object: TensorObject) -> None:
    with pytest.raises(NotRepresentableError):
        EMITTERS["0.1.0"]().require_object(tensor_object)


def test_the_file_has_no_attributes() -> None:
    EMITTERS["0.1.0"]().require_attributes({})
    with pytest.raises(NotRepresentableError) as caught:
        EMITTERS["0.1.0"]().require_attributes({"license": "x"})
    assert "1.2.0" in str(caught.value)


def test_attributes_nest_as_deep_as_they_are_read() -> None:
    value: object = 1
    for _ in range(62):
        value = [value]
    emitter = EMITTERS["0.1.0"]()
    deepest = dense(attributes={"a": value})
    emitter.require_object(deepest)
    assert parse(emitter.emit(Manifest("0.1.0", {"w": deepest}), END)[:-8]).objects["w"] == deepest
    with pytest.raises(NotRepresentableError):
        emitter.require_object(dense(attributes={"a": [value]}))


# --- Reading ------------------------------------------------------------------------------------


def test_an_empty_index_has_one_byte() -> None:
    """0.1 section 7. No byte at all may be all that a cut left."""
    assert parse(b"\x80") == Manifest("0.1.0", {})
    with refused(ManifestError, Reason.CBOR_TRUNCATED):
        parse(b"")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, dense()),
        ({"layout": "dense"}, dense()),
        ({"layout": None, "checksum": None, "data_endianness": None}, dense()),
        ({"data_endianness": "little"}, dense()),
        ({"data_endianness": "big"}, dense(byte_order="big")),
        # The order is said of raw elements wider than a byte; elsewhere it has no meaning.
        ({"data_endianness": "big", "encoding": "zstd"}, dense(encoding="zstd")),
        ({"data_endianness": "big", "dtype": "int8"}, dense(dtype="i8")),
        ({"data_endianness": "big", "dtype": "odd"}, dense(dtype="odd")),
        ({"dtype": "bfloat16"}, dense(dtype="bf16")),
        ({"encoding": "lz4"}, dense(encoding="lz4")),
        ({"checksum": "md5:00"}, dense(digest="md5:00")),
        ({"mine": [1], "é": {}}, dense(attributes={"mine": [1], "é": {}})),
    ],
    ids=str,
)
def test_an_entry(changes: dict[str, Any], expected: TensorObject) -> None:
    assert only(**changes) == expected


@pytest.mark.parametrize("layout", ["sparse", "sparsecsr", "sparse_csr", "quantized_group"])
def test_other_layouts_are_unknown_also_under_a_later_name(layout: str) -> None:
    found = only(layout=layout)
    assert found.is_opaque
    assert found.format != layout
    assert layout in found.format


@pytest.mark.parametrize(
    ("entries", "path", "reason"),
    [
        ({}, (), Reason.FIELD_TYPE),
        ("x", (), Reason.FIELD_TYPE),
        ([1], (0,), Reason.FIELD_TYPE),
        ([{1: 2}], (0,), Reason.FIELD_TYPE),
        ([entry(name=ABSENT)], (0, "name"), Reason.FIELD_MISSING),
        ([entry(name=b"w")], (0, "name"), Reason.FIELD_TYPE),
        ([entry(offset=ABSENT)], (0, "offset"), Reason.FIELD_MISSING),
        ([entry(offset=63)], (0, "offset"), Reason.OFFSET_ALIGNMENT),
        ([entry(offset=0)], (0, "offset"), Reason.OUT_OF_BOUNDS),
        ([entry(), entry(name="v", offset=END)], (1, "offset"), Reason.OUT_OF_BOUNDS),
        ([entry(size=-1)], (0, "size"), Reason.FIELD_VALUE),
        ([entry(size=2**64 - 1)], (0, "offset"), Reason.OUT_OF_BOUNDS),
        ([entry(dtype=ABSENT)], (0, "dtype"), Reason.FIELD_MISSING),
        ([entry(shape=ABSENT)], (0, "shape"), Reason.FIELD_MISSING),
        ([entry(shape=[0.5])], (0, "shape"), Reason.FIELD_TYPE),
        ([entry(encoding=ABSENT)], (0, "encoding"), Reason.FIELD_MISSING),
        ([entry(encoding=None)], (0, "encoding"), Reason.FIELD_TYPE),
        ([entry(layout=1)], (0, "layout"), Reason.FIELD_TYPE),
        ([entry(data_endianness="middle")], (0, "data_endianness"), Reason.FIELD_VALUE),
        ([entry(checksum="crc32c:1")], (0, "checksum"), Reason.DIGEST_MALFORMED),
        ([entry(), entry()], (1, "name"), Reason.DUPLICATE_NAME),
    ],
    ids=lambda value: None if isinstance(value, (list, dict)) else str(value),
)
def test_a_broken_rule_is_named_with_its_place(
    entries: object, path: tuple[str | int, ...], reason: Reason
) -> None:
    with refused(ManifestError, reason) as caught:
        parse(cbor2.dumps(entries))
    if path:
        (problem,) = caught.value.problems
        assert (problem.reason, problem.path) == (reason, path)


def test_all_broken_rules_are_listed() -> None:
    entries = [entry(offset=1), entry(name="v"), entry(name="v", size=-1), 3]
    with pytest.raises(ManifestError) as caught:
        parse(cbor2.dumps(entries))
    assert [(problem.reason, problem.object_name) for problem in caught.value.problems] == [
        (Reason.OFFSET_ALIGNMENT, "w"),
        (Reason.FIELD_VALUE, "v"),
        (Reason.DUPLICATE_NAME, "v"),
        (Reason.FIELD_TYPE, None),
    ]


@pytest.mark.slow
def test_many_tiny_tensors_are_read_again(tmp_path: Path) -> None:
    """What the index is decoded to was held beside what it became, and was more than may be."""
    names = [f"t{number}" for number in range(100_000)]
    path = tmp_path / "m.zt"
    tiny = dict.fromkeys(names, np.zeros(1, np.uint8))
    ztensor.numpy.save_file(tiny, path, version="0.1", deduplicate=False)
    with ztensor.open(path) as reader:
        assert sorted(reader) == sorted(names)
        assert reader["t99999"].shape == (1,)


def test_an_index_that_costs_too_much_is_refused_for_that() -> None:
    index = cbor2.dumps([entry(k=[1.5] * 5000)])
    with refused(LimitError, Reason.LIMIT_COST):
        parse(index, Limits(cost_floor=20_000, cost_factor=1))
