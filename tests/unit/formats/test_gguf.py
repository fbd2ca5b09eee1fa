from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import (
    ARRAY,
    STR,
    U8,
    accepted,
    array,
    blocks_of,
    every_pair,
    gguf,
    info,
    pair,
    refused,
)
from tests.unit.formats.exporting import exported
from ztensor.errors import (
    LimitError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
)
from ztensor.limits import Limits

TYPES = "GGUF.types"  # the attribute with the types of the others
CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
ACCEPT, REJECT = CORPUS / "accept" / "gguf", CORPUS / "reject" / "gguf"
EXPECTED = json.loads((ACCEPT / "expected.json").read_text())
REASONS = json.loads((REJECT / "expected.json").read_text())


def as_zt(reader: Any, path: Path) -> ztensor.Reader:
    with ztensor.Writer(path, attributes=reader.attributes) as writer:
        for name in reader:
            writer.copy(name, reader)
    return ztensor.open(path)


# --- The contents of a file -------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_values_are_those_the_package_reads(name: str) -> None:
    expected = EXPECTED[name]
    with ztensor.open(ACCEPT / f"{name}.gguf", verify=True) as reader:
        assert reader.format == "gguf"
        attributes = reader.attributes
        attributes.pop(TYPES, None)
        found = {key: value for key, value in attributes.items() if value != []}
        assert found == expected["attributes"]
        assert set(reader) == set(expected["tensors"])
        for tensor_name, facts in expected["tensors"].items():
            assert reader.metadata(tensor_name).shape == tuple(facts["shape"])
            if facts["values"] is None:
                with pytest.raises(UnsupportedError):
                    reader.read(tensor_name).to_dense()
                continue
            found_array = reader.read(tensor_name).to_dense()
            values = np.frombuffer(base64.b64decode(facts["values"]), facts["dtype"])
            assert found_array.dtype.name == facts["dtype"]
            assert found_array.tobytes() == values.tobytes()


def test_the_committed_files_are_what_the_script_makes() -> None:
    for name, data in accepted().items():
        assert (ACCEPT / f"{name}.gguf").read_bytes() == data
    for name, (data, reason) in refused().items():
        assert (REJECT / f"{name}.gguf").read_bytes() == data
        assert REASONS[name] == reason


def test_every_type_of_metadata_has_a_name() -> None:
    types = ztensor.open(accepted()["metadata"]).attributes[TYPES]
    assert types[0] == ["general.architecture", "str"]
    assert [kind for _, kind in types[1:4]] == ["u8", "[u8]", "[u8]"]
    assert len(types) == len(every_pair())


def test_bfloat16_is_dense() -> None:
    values = np.array([1.0, -2.0], np.float32).view(np.uint32) >> 16
    data = gguf((), [info("a", (2,), 30, 0)], values.astype("<u2").tobytes())
    array = ztensor.open(data)["a"]
    assert array.dtype.name == "bfloat16"
    assert array.astype(np.float32).tolist() == [1.0, -2.0]


def test_shapes_without_elements_and_without_axes() -> None:
    infos = [info("none", (256, 0), 12, 0), info("far", (0,), 0, 1 << 40), info("one", (), 0, 0)]
    reader = ztensor.open(gguf((), infos, struct.pack("<f", 2.5)))
    assert reader["one"].shape == ()
    assert reader["one"] == 2.5
    assert reader["far"].shape == (0,)
    assert reader.read("none").dequantize().shape == (0, 256)


def test_a_string_that_is_not_utf8_becomes_bytes() -> None:
    raw = struct.pack("<Q", 2) + b"\xff\xfe"
    strings = struct.pack("<IQ", STR, 2) + raw + struct.pack("<Q", 1) + b"a"
    data = gguf([pair("one", STR, raw), pair("two", ARRAY, strings)])
    attributes = ztensor.open(data).attributes
    assert attributes["one"] == b"\xff\xfe"
    assert attributes["two"] == [b"\xff\xfe", "a"]
    assert exported("gguf", ztensor.open(data)) == (data + bytes(-len(data) % 32), [])


def test_arrays_of_arrays_keep_their_types() -> None:
    inner = [array(U8, [1, 2]), array(STR, ["a"]), array(U8, [])]
    nested = array(ARRAY, [*inner, array(ARRAY, [])])
    data = gguf([pair("a", ARRAY, nested)])
    reader = ztensor.open(data)
    assert reader.attributes["a"] == [[1, 2], ["a"], [], []]
    assert reader.attributes[TYPES] == [["a", ["[u8]", "[str]", "[u8]", []]]]
    assert exported("gguf", reader) == (data + bytes(-len(data) % 32), [])


def test_a_long_vocabulary_is_longer_than_the_first_read() -> None:
    words = [f"token {number} ä" * 3 for number in range(40_000)] + ["x" * (5 << 20)]
    data = gguf([pair("a", ARRAY, array(STR, words)), pair("b", U8, 7)])
    assert len(data) > 1 << 20
    attributes = ztensor.open(data).attributes
    assert attributes["a"] == words
    assert attributes["b"] == 7


def test_a_type_without_a_name_is_listed_and_refused_and_others_are_read() -> None:
    infos = [info("odd", (8,), 99, 0), info("good", (8,), 24, 32)]
    reader = ztensor.open(gguf((), infos, bytes(range(40))))
    assert reader.metadata("odd").format == "gguf.type_99"
    assert reader.location("odd").length == 32
    with pytest.raises(UnsupportedError) as caught:
        reader.read("odd")
    assert caught.value.reason is Reason.UNKNOWN_LAYOUT
    assert reader["good"].tolist() == list(range(32, 40))


def test_blocks_of_a_big_endian_file_are_refused() -> None:
    blocks = blocks_of("q4_0").tobytes()
    reader = ztensor.open(gguf((), [info("a", (32,), 2, 0, ">")], blocks, order=">"))
    assert reader.metadata("a").shape == (32,)
    for read in (reader.read, lambda name: list(reader.decoded_chunks(name))):
        with pytest.raises(UnsupportedError) as caught:
            read("a")
        assert caught.value.reason is Reason.UNKNOWN_ENCODING


def test_the_header_may_be_as_long_as_limits_say() -> None:
    data = gguf([pair("a", STR, "x" * 5000)])
    with pytest.raises(LimitError) as caught:
        ztensor.open(data, limits=Limits(manifest_bytes=4000))
    assert caught.value.reason is Reason.LIMIT_MANIFEST


# --- Into .zt and back ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata", "plain", "quantized", "alignment_64"])
def test_export_gives_the_bytes_of_the_file_it_was(name: str, tmp_path: Path) -> None:
    data = accepted()[name]
    alignment = 64 if name == "alignment_64" else 32
    data += bytes(-len(data) % alignment)  # that behind the last tensor is not in the sample
    reader = ztensor.open(data)
    assert exported("gguf", reader) == (data, [])
    assert exported("gguf", as_zt(reader, tmp_path / "a.zt")) == (data, [])


@pytest.mark.parametrize("name", ["version_2", "big_endian"])
def test_export_of_other_files_gives_equal_content(name: str) -> None:
    reader = ztensor.open(accepted()[name])
    data, losses = exported("gguf", reader)
    again = ztensor.open(data)
    assert losses == []
    assert again.version == "3"
    assert again.attributes == reader.attributes
    for key in reader:
        assert np.array_equal(again[key], reader[key])


INFERRED: list[tuple[Any, Any]] = [
    ("text", "str"),
    (True, "bool"),
    (3, "u32"),
    (-3, "i32"),
    (1 << 40, "u64"),
    (-(1 << 40), "i64"),
    (0.5, "f32"),
    (0.1, "f64"),
    (["a", "b"], "[str]"),
    ([True], "[bool]"),
    ([1, -1], "[i32]"),
    ([1, 1 << 31], "[u32]"),
    ([1 << 40], "[i64]"),
    ([1 << 63], "[u64]"),
    ([0.5], "[f32]"),
    ([0.5, 0.1], "[f64]"),
    ([], "[str]"),
    ([[1], ["a"]], ["[i32]", "[str]"]),
]


@pytest.mark.parametrize(("value", "kind"), INFERRED, ids=[repr(value) for value, _ in INFERRED])
def test_attributes_get_the_smallest_common_type(value: Any, kind: Any, tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "a.zt", attributes={"key": value}):
        pass
    data, losses = exported("gguf", ztensor.open(tmp_path / "a.zt"))
    again = ztensor.open(data)
    assert losses == []
    assert again.attributes == {"key": value, TYPES: [["key", kind]]}


@pytest.mark.parametrize(
    ("types", "kind"),
    [
        ([["key", "u8"]], "u8"),
        ([["key", "i8"]], "u32"),
        ([["key", "[u8]"]], "u32"),
        ([["key", ["u8"]]], "u32"),
        ([["key", 7]], "u32"),
        ([["key", "u9"]], "u32"),
        ([["gone", "u8"], 3, ["key"]], "u32"),
        ("nonsense", "u32"),
    ],
    ids=repr,
)
def test_types_of_attributes_are_used_if_the_value_fits(
    types: Any, kind: str, tmp_path: Path
) -> None:
    with ztensor.Writer(tmp_path / "a.zt", attributes={"key": 200, TYPES: types}):
        pass
    data, losses = exported("gguf", ztensor.open(tmp_path / "a.zt"))
    assert losses == []
    assert ztensor.open(data).attributes == {"key": 200, TYPES: [["key", kind]]}


def test_losses_are_left_out_and_reported(tmp_path: Path) -> None:
    attributes = {
        "good": 1,
        "none": None,
        "map": {"a": 1},
        "mixed": [1, "a"],
        "nested": [[None]],
        "general.alignment": 24,
    }
    with ztensor.Writer(tmp_path / "a.zt", attributes=attributes) as writer:
        writer.write("good", np.ones(3, np.float32), attributes={"a": 1})
        writer.write("u8", np.ones(3, np.uint8))
        writer.write("complex", np.ones(3, np.complex64))
        writer.write("deep", np.ones((1,) * 5, np.float32))
        writer.write("long" * 16, np.ones(3, np.float32))
        writer.write("sparse", ztensor.Tensor.csr([1.0], [0], [0, 1], (1, 2)))
        components = {"data": blocks_of("q4_0").reshape(-1), "more": np.ones(1)}
        writer.write("blocks", ztensor.Tensor(components, shape=(32,), format="gguf.q4_0"))
    data, losses = exported("gguf", ztensor.open(tmp_path / "a.zt"))
    again = ztensor.open(data)
    assert sorted(again) == ["blocks", "good"]
    assert again.attributes == {"good": 1, TYPES: [["good", "u32"]]}
    lost = {name for name, _ in losses if name is not None}
    assert lost == {"good", "u8", "complex", "deep", "long" * 16, "sparse", "blocks"}
    assert sum(name is None for name, _ in losses) == 5


def test_a_file_of_which_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    with ztensor.Writer(tmp_path / "a.zt") as writer:
        writer.write("a", np.ones(3, np.uint16))
    with pytest.raises(NotRepresentableError):
        exported("gguf", ztensor.open(tmp_path / "a.zt"))


def test_swapped_blocks_are_left_out() -> None:
    infos = [info("a", (32,), 2, 0, ">"), info("b", (1,), 24, 32, ">")]
    data = gguf((), infos, blocks_of("q4_0").tobytes() + bytes(14) + b"\7", order=">")
    written, losses = exported("gguf", ztensor.open(data))
    assert [name for name, _ in losses] == ["a"]
    assert ztensor.open(written).keys() == ["b"]


@pytest.mark.parametrize(
    ("value", "kind"), [(b"", None), (b"text", None), (b"\xff", "str"), ([b"\xff", "a"], "[str]")]
)
def test_bytes_are_written_if_they_are_read_back_as_bytes(
    value: Any, kind: str | None, tmp_path: Path
) -> None:
    with ztensor.Writer(tmp_path / "a.zt", attributes={"key": value}) as writer:
        writer.write("a", np.ones(3, np.float32))
    data, losses = exported("gguf", ztensor.open(tmp_path / "a.zt"))
    again = ztensor.open(data).attributes
    assert [name for name, _ in losses] == ([None] if kind is None else [])
    assert again == ({} if kind is None else {"key": value, TYPES: [["key", kind]]})


# --- A model in several files -----------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """A model as llama.cpp splits one, each file with one tensor."""
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    writer = package.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=1)
    writer.add_uint16("small", 5)
    for number in range(3):
        writer.add_tensor(f"t{number}", np.full(4, number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["the first", "the folder", "a list"])
def test_a_split_model_is_opened_as_one(shards: list[Path], what: str, tmp_path: Path) -> None:
    source: Any = {"the first": shards[0], "the folder": tmp_path, "a list": shards}[what]
    with ztensor.open(source) as reader:
        assert {name: reader[name][0] for name in reader} == {"t0": 0, "t1": 1, "t2": 2}
        assert reader.attributes == {
            "general.architecture": "llama",
            "small": 5,
            TYPES: [["general.architecture", "str"], ["small", "u16"]],
        }
    report = ztensor.convert(source, tmp_path / "whole.gguf", check=True, strict=True)
    assert report.objects == 3
    assert ztensor.content_hash(tmp_path / "whole.gguf") == ztensor.content_hash(shards)


def test_another_shard_is_only_itself(shards: list[Path]) -> None:
    with ztensor.open(shards[1]) as reader:
        assert (list(reader), reader.attributes["split.no"]) == (["t1"], 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_shard_is_refused(shards: list[Path], number: int) -> None:
    shards[number].unlink()
    with pytest.raises(FileNotFoundError):
        ztensor.open(shards[0])


# --- Against the package ----------------------------------------------------------------------


def test_the_package_reads_what_we_export(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    with ztensor.Writer(tmp_path / "a.zt", attributes={"a": [1, 2], "b": "x"}) as writer:
        writer.write("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
        writer.write("scalar", np.float32(2))
        writer.write("brain", ml_dtypes.bfloat16(2))
        source = ztensor.open(accepted()["quantized"])
        for name in source:
            writer.copy(name, source)
    ours = ztensor.open(tmp_path / "a.zt")
    path = tmp_path / "a.gguf"
    data, losses = exported("gguf", ours)
    assert [name for name, _ in losses] == ["brain"]  # the package stops where it has no dimension
    path.write_bytes(data)
    reader = package.GGUFReader(path)
    assert reader.get_field("a").contents() == [1, 2]
    assert reader.get_field("b").contents() == "x"
    assert {tensor.name for tensor in reader.tensors} == set(ours)
    for tensor in reader.tensors:
        shape = (1,) if tensor.name == "brain" else ours.metadata(tensor.name).shape
        assert tuple(tensor.shape[::-1].tolist()) == shape
        assert tensor.data.tobytes() == ours.read(tensor.name).components["data"].tobytes()


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_arrays_nest_as_deep_as_the_limit(levels: int) -> None:
    value = array(U8, [7])
    expected: Any = [7]
    for _ in range(levels - 1):
        value, expected = array(ARRAY, [value]), [expected]
    data = gguf([pair("a", ARRAY, value)])
    with ztensor.open(data, limits=Limits(depth=levels + 1)) as reader:
        assert reader.attributes["a"] == expected
    with pytest.raises(LimitError) as caught:
        ztensor.open(data, limits=Limits(depth=levels))
    assert caught.value.reason is Reason.LIMIT_DEPTH


@pytest.mark.parametrize("between", [0, 32, 64])
@pytest.mark.parametrize("behind", [0, 31, 32])
def test_gaps_other_than_padding_are_losses(between: int, behind: int) -> None:
    """Padding is shorter than the alignment; longer gaps are losses."""
    infos = [info("a", [8], 0, 0), info("b", [8], 0, 32 + between)]
    data = gguf([], infos, bytes(64 + between + behind))
    with ztensor.open(data) as reader:
        holes = [one for one in reader.unrepresented if one.kind == "bytes of no tensor"]
        assert sum(one.nbytes or 0 for one in holes) == between + (behind if behind >= 32 else 0)


@pytest.mark.parametrize(
    ("name", "rank", "is_kept"),
    [("n" * 63, 4, True), ("n" * 64, 4, False), ("\u00fc" * 32, 4, False), ("n", 5, False)],
)
def test_the_longest_name_and_the_most_dimensions(name: str, rank: int, is_kept: bool) -> None:
    """63 bytes are what ggml reads; they are counted in UTF-8."""
    tensors = {name: np.ones((1,) * rank, np.float32), "other": np.ones(1, np.float32)}
    with ztensor.open(ztensor.numpy.save(tensors)) as reader:
        data, losses = exported("gguf", reader)
    with ztensor.open(data) as again:
        assert sorted(again) == sorted([name, "other"] if is_kept else ["other"])
    assert [lost for lost, _ in losses] == ([] if is_kept else [name])
