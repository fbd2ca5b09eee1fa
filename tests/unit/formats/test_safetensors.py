"""safetensors: read as strictly as by its own library, and written as the library writes it."""

from __future__ import annotations

import io
import json
import struct
import time
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.refusals import refused
from tests.unit.formats.exporting import exported
from ztensor.errors import Reason
from ztensor.testing.damage import damaged, random_damage
from ztensor.testing.promise import exercise

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
GOLDEN = CORPUS / "accept/safetensors/small.safetensors"


def file(entries: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


# --- Reading --------------------------------------------------------------------------------


def test_a_golden_file() -> None:
    expected = json.loads(GOLDEN.with_suffix(".json").read_text("utf-8"))
    with ztensor.open(GOLDEN) as reader:
        assert reader.format == "safetensors"
        assert reader.attributes == {"format": "np", "äöü \U0001f600": "\n"}
        assert {name: reader[name].reshape(-1).tolist() for name in reader} == {
            name: entry["values"] for name, entry in expected.items()
        }
        assert [reader[name].shape for name in expected] == [
            tuple(entry["shape"]) for entry in expected.values()
        ]
        assert not reader.verify().problems
    assert exercise(GOLDEN.read_bytes()).verified


# The format's words: bits of an element, and what NumPy has for them.
DTYPES = {
    "BOOL": (8, "bool"),
    "F4": (4, "float4_e2m1fn"),
    "F6_E2M3": (6, "float6_e2m3fn"),
    "F6_E3M2": (6, "float6_e3m2fn"),
    "U8": (8, "uint8"),
    "I8": (8, "int8"),
    "F8_E5M2": (8, "float8_e5m2"),
    "F8_E4M3": (8, "float8_e4m3fn"),
    "F8_E8M0": (8, "float8_e8m0fnu"),
    "F8_E4M3FNUZ": (8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "float8_e5m2fnuz"),
    "I16": (16, "int16"),
    "U16": (16, "uint16"),
    "F16": (16, "float16"),
    "BF16": (16, "bfloat16"),
    "I32": (32, "int32"),
    "U32": (32, "uint32"),
    "F32": (32, "float32"),
    "C64": (64, "complex64"),
    "F64": (64, "float64"),
    "I64": (64, "int64"),
    "U64": (64, "uint64"),
    "Q3_LATER": (24, None),
}


def one_of_each() -> tuple[bytes, dict[str, bytes]]:
    header, data, stored = {}, b"", {}
    for word, (bits, _) in DTYPES.items():
        piece = bytes(number % 2 for number in range(bits))  # 2 * 4 elements
        header[f"a {word}"] = tensor(word, [2, 4], len(data), len(data) + bits)
        stored[f"a {word}"] = piece
        data += piece
    return file(header, data), stored


@pytest.mark.parametrize("word", DTYPES)
def test_every_element_type(word: str) -> None:
    data, stored = one_of_each()
    name, (bits, dtype) = f"a {word}", DTYPES[word]
    with ztensor.open(data) as reader:
        metadata = reader.metadata(name)
        assert metadata.shape == (2, 4)
        assert metadata.components["data"].length == len(stored[name])
        if dtype is None:
            assert metadata.dtype == word
            with pytest.raises(ztensor.UnsupportedError, match=word):
                reader.read(name)
            return
        array = reader[name]
        assert array.dtype.name == dtype
        assert array.shape == (2, 4)
        if bits < 8:
            number = int.from_bytes(stored[name], "little")
            values = [number >> bits * place & (1 << bits) - 1 for place in range(8)]
            assert array.view(np.uint8).reshape(-1).tolist() == values
        else:
            assert array.tobytes() == stored[name]
        np.testing.assert_array_equal(
            reader.get_slice(name)[1:, 1].view(np.uint8), array[1:, 1].view(np.uint8)
        )


HEADERS = {
    "blanks behind": '{"a":%s}  \n\t',
    "empty": "{}",
    "metadata null": '{"__metadata__":null,"a":%s}',
    "metadata empty": '{"__metadata__":{},"a":%s}',
    "metadata last": '{"a":%s,"__metadata__":{"k":"v"}}',
    "another field": '{"a":{"new":[{"x":1e5}],"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "an unread field nested as deeply as it reads": '{"a":{"new":'
    + "[" * 125
    + "]" * 125
    + ',"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "an unread number of many digits": '{"a":{"new":[-0,1e-400,123456789012345678901],'
    '"dtype":"U8","shape":[],"data_offsets":[0,1]}}',
    "blanks": '{ "a" : %s }',
    "escaped name": '{"\\u0061":%s}',
    "braces in a name": '{"}{\\"":%s}',
    "brackets in a name": '{"}],[{:,":%s}',
    "empty tensors": '{"a":%s,"b":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]},'
    '"c":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}}',
    "a large empty shape, read as JSON": '{ "a":%s,'
    '"b":{"dtype":"F64","shape":[0,18446744073709551615],"data_offsets":[1,1]}}',
    "a large empty shape, the other way round": '{"a":%s,'
    '"b":{"dtype":"F64","shape":[18446744073709551615,0],"data_offsets":[1,1]}}',
    "a large empty shape": '{"a":%s,'
    '"b":{"dtype":"F64","shape":[0,18446744073709551615],"data_offsets":[1,1]}}',
    "not in the order of the data": '{"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"b":%s}',
}
SCALAR = '{"dtype":"U8","shape":[],"data_offsets":[0,1]}'


@pytest.mark.parametrize("text", HEADERS.values(), ids=list(HEADERS))
def test_what_the_library_takes_is_taken(text: str) -> None:
    library = pytest.importorskip("safetensors", reason="the format's own library")
    raw = (text.replace("%s", SCALAR)).encode()
    data = struct.pack("<Q", len(raw)) + raw + (b"x" if "[0,1]" in text or "%s" in text else b"")
    theirs = {name: tuple(entry["shape"]) for name, entry in library.deserialize(data)}
    with ztensor.open(data) as reader:
        assert {name: tuple(reader.metadata(name).shape) for name in reader} == theirs


@pytest.mark.slow
def test_what_the_library_refuses_is_refused() -> None:
    """Damaged headers: never taken here and refused there, but for types that come later."""
    library = pytest.importorskip("safetensors", reason="the format's own library")
    header = {
        "__metadata__": {"k": "v"},
        "a": tensor("F32", [2, 1], 0, 8),
        "b": tensor("U8", [3], 8, 11),
        "c": tensor("BF16", [], 11, 13),
    }
    good = file(header, bytes(13))
    random = Random(5)
    taken = 0
    for _ in range(3000):
        data = damaged(good, [random_damage(random, len(good))])
        try:
            library.deserialize(data)
        except library.SafetensorError as error:
            if "unknown variant" in str(error):
                continue
            with pytest.raises((ztensor.FormatError, ztensor.LimitError)):
                ztensor.open(data)
        else:
            taken += 1
            try:
                ztensor.open(data)
            except ztensor.FormatError as error:
                assert error.reason == Reason.DUPLICATE_NAME  # noqa: PT017
    assert taken > 50


STRICTER = [
    '{"a":["U8",[],[0,1]]}',
    '{"a":{"dtype":{"U8":null},"shape":[],"data_offsets":[0,1]}}',
    ' {"a":%s}',
]


@pytest.mark.parametrize("text", STRICTER)
def test_what_only_the_library_takes(text: str) -> None:
    """No writer writes these, and the format's text has no place for them."""
    library = pytest.importorskip("safetensors", reason="the format's own library")
    raw = text.replace("%s", SCALAR).encode()
    data = struct.pack("<Q", len(raw)) + raw + b"x"
    assert [name for name, _ in library.deserialize(data)] == ["a"]
    with pytest.raises(ztensor.FormatError):
        ztensor.open(data)


def test_a_long_header_is_capped_by_the_limits() -> None:
    with refused(ztensor.LimitError, Reason.LIMIT_MANIFEST):
        ztensor.open(GOLDEN, limits=ztensor.Limits(manifest_bytes=10))


def test_torch_takes_data_at_any_offset() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    data = file({"a": tensor("U8", [1], 0, 1), "b": tensor("F32", [2], 1, 9)}, bytes(9))
    with ztensor.open(data) as reader:
        assert torch.equal(reader.read_torch("b"), torch.zeros(2))


# --- Converting -----------------------------------------------------------------------------


VALUES: dict[str, Any] = {
    "b": np.array([[1.5, 2]], np.float16),
    "a": np.arange(3, dtype=np.int64),
    "z": np.array(True),
    "ü\n": np.zeros((0, 2), np.float64),
    "c": np.array([1j], np.complex64),
    "u": np.arange(5, dtype=np.uint8),
    "w": np.arange(3, dtype=np.uint32),
    "d": np.arange(3, dtype=np.float32),
}


@pytest.mark.parametrize("metadata", [None, {"format": "np"}], ids=["bare", "metadata"])
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_it_is_written_as_the_library_writes(
    metadata: dict[str, str] | None, compression: bool
) -> None:
    library = pytest.importorskip("safetensors.numpy", reason="the format's own library")
    with ztensor.open(ztensor.numpy.save(VALUES, metadata, compression=compression)) as reader:
        written, lost = exported("safetensors", reader)
    assert written == library.save(VALUES, metadata)
    assert lost == []


def test_what_is_written_is_read_again() -> None:
    more = {
        **VALUES,
        "bf": np.arange(4).astype(ml_dtypes.bfloat16),
        "f8": np.arange(4).astype(ml_dtypes.float8_e5m2),
        "f4": np.arange(4).astype(ml_dtypes.float4_e2m1fn),
    }
    with ztensor.open(ztensor.numpy.save(more)) as reader:
        written, lost = exported("safetensors", reader)
    assert lost == []
    with ztensor.open(written) as again:
        assert set(again) == set(more)
        for name, array in more.items():
            assert again[name].dtype == array.dtype
            assert again[name].shape == array.shape
            assert again[name].tobytes() == array.tobytes()
        place = min(again.location(name).offset for name in again)
        assert place % 8 == 0
    assert exercise(written).verified


CSR = ztensor.Tensor.csr(np.array([1.5], np.float32), [2], [0, 1], (1, 3))
# Saved arrays, names and types of the written tensors, and a word of the loss.
LOSSES: dict[str, tuple[dict[str, Any], dict[str, tuple[str, tuple[int, ...]]], str]] = {
    "complex128": (
        {"a": np.array([1 + 2j])},
        {"a": ("F64", (1, 2))},
        "complex128",
    ),
    "half a byte": (
        {"a": np.arange(3).astype(ml_dtypes.float4_e2m1fn)},
        {"a": ("U8", (2,))},
        "f4_e2m1",
    ),
    "reserved": ({"__metadata__": np.zeros(1)}, {}, "left out"),
    "sparse": (
        {"a": CSR},
        {"a.values": ("F32", (1,)), "a.indices": ("U64", (1,)), "a.indptr": ("U64", (2,))},
        "sparse_csr",
    ),
    "taken": (
        {"a": CSR, "a.values": np.zeros(2, np.int8)},
        {"a.values": ("I8", (2,)), "a.indices": ("U64", (1,)), "a.indptr": ("U64", (2,))},
        "taken",
    ),
}


@pytest.mark.parametrize(("arrays", "expected", "word"), LOSSES.values(), ids=list(LOSSES))
def test_losses_are_reported(arrays: dict[str, Any], expected: dict[str, Any], word: str) -> None:
    with ztensor.open(ztensor.numpy.save(arrays)) as reader:
        written, lost = exported("safetensors", reader)
    header = json.loads(written[8 : 8 + int.from_bytes(written[:8], "little")])
    assert {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()} == (
        expected
    )
    assert any(word in sentence for _, sentence in lost)
    assert {name for name, _ in lost} <= set(arrays)
    assert exercise(written).opened


def test_attributes_other_than_text_become_json() -> None:
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, attributes={"n": [1, b"\1", {"k": None}], "t": "x"}) as writer:
        writer.write("a", np.zeros(1, np.uint8), attributes={"unit": "m"})
    with ztensor.open(buffer.getvalue()) as reader:
        written, lost = exported("safetensors", reader)
    with ztensor.open(written) as reader:
        assert reader.attributes == {"n": '[1, "01", {"k": null}]', "t": "x"}
    assert [name for name, _ in lost] == ["a", None]
    assert "'unit'" in lost[0][1]


@pytest.mark.slow
def test_many_tiny_tensors_are_read_again(tmp_path: Path) -> None:
    """Their header is longer than their bytes."""
    names = [f"t{number}" for number in range(50_000)]
    path = tmp_path / "m.safetensors"
    ztensor.numpy.save_file(dict.fromkeys(names, np.zeros(1, np.float32)), path, deduplicate=False)
    with ztensor.open(path) as reader:
        assert sorted(reader) == sorted(names)
        assert reader["t49999"].shape == (1,)


@pytest.mark.parametrize("text", ["{", "{ ", '{"', "{,", '{"a"', "{}}", "{},", "{}{}", '{"a":{}'])
def test_a_header_that_ends_early_or_late_is_refused(text: str) -> None:
    with refused(ztensor.FormatError, Reason.FIELD_VALUE):
        ztensor.open(struct.pack("<Q", len(text)) + text.encode())


BETWEEN = '},"b":{"dtype":"F32"}'


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" \n,\t", " : ")])
@pytest.mark.parametrize("ahead", [0, 1, 5, 600])
def test_a_long_header_is_read_in_parts(separators: tuple[str, str], ahead: int) -> None:
    """It is not cut at ends of tensors inside texts and unknown objects."""
    header: dict[str, Any] = {f"name {i:04}": tensor("U8", [i % 3], 0, 0) for i in range(1500)}
    at = 0
    for i, entry in enumerate(header.values()):
        entry["data_offsets"] = [at, at := at + i % 3]
        entry["new"] = [BETWEEN * ahead, {"a": {}, "b": {"x": [1]}}] if i % 500 == 7 else 1
    header["__metadata__"] = {"a": BETWEEN * ahead}
    text = json.dumps(header, separators=separators).encode()
    assert len(text) > 80_000
    data = struct.pack("<Q", len(text)) + text + bytes(i % 251 for i in range(at))
    with ztensor.open(data) as reader:
        assert set(reader) == {*header} - {"__metadata__"}
        assert reader.attributes == header["__metadata__"]
        assert reader["name 1499"].tolist() == [(at - 2) % 251, (at - 1) % 251]


@pytest.mark.parametrize(
    ("found", "wrong", "reason"),
    [
        (',"name 1400":', '}"name 1400":', Reason.FIELD_VALUE),
        (',"name 1400":', ' "name 1400":', Reason.FIELD_VALUE),
        (',"name 1400":', '},"name 1400":', Reason.FIELD_VALUE),
        (',"name 1400":', ',,"name 1400":', Reason.FIELD_VALUE),
        (',"name 1400":', ',"name 0003":', Reason.DUPLICATE_NAME),
        (',"name 1400":', ',"__metadata__":{},"name 1400":', Reason.DUPLICATE_NAME),
        (',"name 1400":', ',"__metadata__":null,"name 1400":', Reason.DUPLICATE_NAME),
        ('"shape":[2],"data_offsets":[1,', '"shape":[2.0],"data_offsets":[1,', Reason.FIELD_TYPE),
        ('"shape":[1],"data_offsets":[0,', '"shape":[true],"data_offsets":[0,', Reason.FIELD_TYPE),
        ('"shape":[0],"data_offsets":[3,', '"shape":[-0],"data_offsets":[3,', Reason.FIELD_TYPE),
        ('"data_offsets":[0,0]', '"data_offsets":[false,0]', Reason.FIELD_TYPE),
        ('"data_offsets":[0,0]', '"data_offsets":{"a":0,"b":0}', Reason.FIELD_TYPE),
        ('"data_offsets":[0,0]', '"data_offsets":[0,0,0]', Reason.FIELD_TYPE),
        ('"dtype":"U8"', '"dtype":["U8"]', Reason.FIELD_TYPE),
    ],
)
def test_a_fault_in_any_part_of_a_header_is_found(found: str, wrong: str, reason: Reason) -> None:
    header: dict[str, Any] = {"__metadata__": {}}
    at = 0
    for i in range(1500):
        header[f"name {i:04}"] = tensor("U8", [i % 3], at, at := at + i % 3)
    text = json.dumps(header, separators=(",", ":"))
    for place in {text.find(found), text.rfind(found)}:
        assert place > 0
        odd = text[:place] + text[place:].replace(found, wrong, 1)
        with refused(ztensor.FormatError, reason):
            ztensor.open(struct.pack("<Q", len(odd)) + odd.encode() + bytes(at))


@pytest.mark.parametrize("blank", ["", " "])
def test_blanks_make_no_header_too_dear(blank: str) -> None:
    """Such as Python's own JSON writes by default: it is read as any other is."""
    count = 50_000
    header = {f"layer.{i}": tensor("U8", [1], i, i + 1) for i in range(count)}
    text = json.dumps(header, separators=("," + blank, ":" + blank)).encode()
    with ztensor.open(struct.pack("<Q", len(text)) + text + bytes(count)) as reader:
        assert len(reader) == count


def test_a_header_is_read_in_linear_time() -> None:
    """Places that look like ends of tensors, before a text or a run of blanks ends."""
    seconds = []
    for count in (1 << 14, 1 << 17):
        text = json.dumps({"__metadata__": {"a": ('},"' + "} " * 20) * count}, "b": 1})
        data = struct.pack("<Q", len(text)) + text.encode()
        start = time.process_time()
        with pytest.raises(ztensor.FormatError):
            ztensor.open(data, limits=ztensor.Limits(cost_floor=1 << 32))
        seconds.append(time.process_time() - start)
    assert seconds[1] < 40 * seconds[0] + 0.1


@pytest.mark.slow
def test_a_header_longer_than_the_format_allows_is_not_written(tmp_path: Path) -> None:
    tensors = {"n" * 65_000 + str(i): np.zeros(1, np.uint8) for i in range(1600)}
    with pytest.raises(ztensor.NotRepresentableError):
        ztensor.numpy.save_file(tensors, tmp_path / "m.safetensors", deduplicate=False)
    assert list(tmp_path.iterdir()) == []
