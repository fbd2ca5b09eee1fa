"""ONNX: initializers as the onnx library reads them, and files that are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.corpus.foreign import make_onnx as make
from tests.refusals import refused
from ztensor.errors import Reason

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
ACCEPT = json.loads((CORPUS / "accept/onnx/expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ACCEPT)
def test_a_golden_file(name: str, tmp_path: Path) -> None:
    with ztensor.open(CORPUS / "accept/onnx" / name) as reader:
        assert reader.format == "onnx"
        assert reader.version == "10"
        found = {key: reader.read(key).to_dense() for key in reader}
        assert {key: array.tolist() for key, array in found.items()} == ACCEPT[name]
        assert not reader.verify().problems
        with ztensor.Writer(tmp_path / "copy.zt") as writer:
            for key in reader:
                writer.copy(key, reader)
    with ztensor.open(tmp_path / "copy.zt") as copy:
        assert {key: copy.read(key).to_dense().tolist() for key in copy} == ACCEPT[name]


def test_attributes() -> None:
    reader = ztensor.open(CORPUS / "accept/onnx/typed.onnx")
    assert reader.attributes == {
        "producer_name": "made",
        "graph": "main",
        "opset_import": {"ai.onnx": 21},
        "metadata_props": {"key": "value"},
    }
    assert reader.metadata("int4").attributes == {"onnx.data_type": "INT4"}
    reader = ztensor.open(make.model(make.GOOD, more=make.number(5, -1)))
    assert reader.attributes["model_version"] == -1


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_text_is_read_up_to_16_mib(more: int) -> None:
    text = "a" * ((16 << 20) + more)
    data = make.model(make.GOOD, more=make.block(6, text))
    if more <= 0:
        assert ztensor.open(data).attributes["doc_string"] == text
        return
    with refused(ztensor.LimitError, Reason.LIMIT_MANIFEST):
        ztensor.open(data)


def test_raw_data_and_packed_floats_are_views(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    floats = make.tensor("floats", make.FLOAT, [6], make.block(4, make.F32))
    path.write_bytes(make.model(make.GOOD, floats))
    with ztensor.open(path) as reader:
        for name in reader:
            place = reader.location(name)
            assert path.read_bytes()[place.offset :][: place.length] == make.F32
            assert reader[name].base is not None


@pytest.mark.parametrize(
    ("code", "data", "reason"),
    [
        (make.INT8, make.varint(128), Reason.FIELD_VALUE),
        (make.UINT8, make.varint(-1), Reason.FIELD_VALUE),
        (make.FLOAT16, make.varint(1 << 16), Reason.FIELD_VALUE),
        (make.INT8, b"\1\1", Reason.SIZE_MISMATCH),
        (make.INT8, b"\1\x80", Reason.SIZE_MISMATCH),
        (make.INT8, b"\x80" * 10, Reason.SIZE_MISMATCH),
        (make.INT8, b"\x80" * 9 + b"\2", Reason.FIELD_VALUE),
    ],
    ids=["int8", "uint8", "half", "more", "unfinished", "endless", "65 bits"],
)
def test_numbers_that_do_not_fit_are_met_when_read(code: int, data: bytes, reason: Reason) -> None:
    reader = ztensor.open(make.model(make.tensor("a", code, [1], make.block(5, data))))
    with refused(ztensor.FormatError, reason):
        reader.read("a")


def test_strings_and_unknown_types_are_listed() -> None:
    texts = make.tensor("s", make.STRING, [2], make.block(6, "a"), make.block(6, "b"))
    reader = ztensor.open(make.model(texts, make.tensor("u", 99, [1], make.raw(b"1")), make.GOOD))
    assert reader.keys() == ["s", "u", "good"]
    parts = make.tensor("p", make.FLOAT, [2], make.block(3, make.number(1, 0)))
    with refused(ztensor.UnsupportedError, Reason.UNKNOWN_ENCODING):
        ztensor.open(make.model(parts))
    for name in ("s", "u"):
        with refused(ztensor.UnsupportedError, Reason.UNKNOWN_DTYPE):
            reader.read(name)


def test_a_sparse_index_outside_the_shape_is_met() -> None:
    far = make.SPARSE.replace((7).to_bytes(8, "little"), (12).to_bytes(8, "little"))
    reader = ztensor.open(make.model(sparse=far))
    with refused(ztensor.FormatError, Reason.INDEX_RANGE):
        reader.read("sparse")
    assert reader.verify().problems


# --- External data --------------------------------------------------------------------------


def beside(location: str, **more: str) -> bytes:
    data: bytes = make.model(
        make.tensor("a", make.FLOAT, [2, 3], make.external(location=location, **more))
    )
    return data


def test_external_data_is_read_beneath_the_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/w.bin").write_bytes(b"12345678" + make.F32 + b"rest")
    (tmp_path / "m.onnx").write_bytes(beside("sub/w.bin", offset="8", length="24"))
    with ztensor.open(tmp_path / "m.onnx") as reader:
        assert reader["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert reader.get_slice("a")[1].tolist() == [3, 4, 5]
        assert b"".join(reader.decoded_chunks("a")) == make.F32
        assert not reader.verify().problems


def test_external_data_is_sliced_in_parts(tmp_path: Path) -> None:
    array = np.arange(1 << 20, dtype="<f4").reshape(-1, 256)
    array.tofile(tmp_path / "w.bin")
    big = make.tensor("a", make.FLOAT, [4096, 256], make.external(location="w.bin"))
    (tmp_path / "m.onnx").write_bytes(make.model(big))
    with ztensor.open(tmp_path / "m.onnx") as reader:
        assert np.array_equal(reader.get_slice("a")[1000:3000:7], array[1000:3000:7])


def test_external_data_that_is_missing_or_short(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(beside("w.bin"))
    reader = ztensor.open(tmp_path / "m.onnx")
    assert reader.keys() == ["a"]
    for use in (reader.verify, lambda: reader.read("a")):
        with pytest.raises(FileNotFoundError):
            use()
    (tmp_path / "w.bin").write_bytes(make.F32[:-1])
    with refused(ztensor.FormatError, Reason.OUT_OF_BOUNDS):
        reader.read("a")
    assert [problem.reason for problem in reader.verify().problems] == [Reason.OUT_OF_BOUNDS]
    (tmp_path / "w.bin").write_bytes(make.F32)
    report = reader.verify()
    assert (report.outcome, report.problems) == ("unchecked", ())  # ONNX has no digests


@pytest.mark.parametrize("what", ["file", "folder"])
def test_external_data_behind_a_link_is_refused(what: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w.bin").write_bytes(make.F32)
    home = tmp_path / "home"
    home.mkdir()
    try:
        if what == "folder":
            (home / "sub").symlink_to(outside, target_is_directory=True)
        else:
            (home / "sub").mkdir()
            (home / "sub/w.bin").symlink_to(outside / "w.bin")
    except OSError:
        pytest.skip("this system lets us make no links")
    (home / "m.onnx").write_bytes(beside("sub/w.bin"))
    with ztensor.open(home / "m.onnx") as reader:
        with pytest.raises(ztensor.UnsupportedError):
            reader.read("a")
        assert [problem.object_name for problem in reader.verify().unsupported] == ["a"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_external_data_in_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.bin")
    (tmp_path / "m.onnx").write_bytes(beside("w.bin"))
    with (
        ztensor.open(tmp_path / "m.onnx") as reader,
        refused(ztensor.SourceError, Reason.SOURCE_NOT_REGULAR),
    ):
        reader.read("a")


def test_external_data_behind_a_url_is_beside_it(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    obstore = pytest.importorskip("obstore")
    obstore.put(store, "x/m.onnx", beside("sub/w.bin", offset="8"))
    obstore.put(store, "x/sub/w.bin", b"12345678" + make.F32)
    with ztensor.open("memory:///x/m.onnx", storage=store) as reader:
        for _ in range(2):
            assert reader["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert reader.get_slice("a")[1].tolist() == [3, 4, 5]
    ztensor.convert(ztensor.Remote("memory:///x/m.onnx", store), tmp_path / "out.zt")
    assert ztensor.open(tmp_path / "out.zt")["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_external_data_of_bytes_is_listed() -> None:
    reader = ztensor.open(beside("w.bin"))
    with pytest.raises(ztensor.UnsupportedError):
        reader.read("a")


def test_float8_comes_as_ml_dtypes() -> None:
    reader = ztensor.open(make.model(make.tensor("a", 17, [1], make.raw(b"\x38"))))
    assert reader["a"].dtype == ml_dtypes.float8_e4m3fn
    assert reader["a"].tolist() == [1.0]


# --- Nodes ----------------------------------------------------------------------------------

DENSE: bytes = make.tensor("", make.FLOAT, [2, 3], make.raw(make.F32))


def graph(*fields: bytes) -> bytes:
    """Return a model with these fields of its graph, in this order."""
    return bytes(make.number(1, 10) + make.block(7, b"".join(fields)))


PLAIN = {
    "no attribute": b"",
    "a number": make.block(5, make.block(1, "axis") + make.number(3, 300) + make.number(20, 2)),
    "a float": make.block(5, make.block(1, "alpha") + b"\x15\0\0\x80\x3f" + make.number(20, 1)),
    "a text": make.block(5, make.block(1, "mode") + make.block(4, "same") + make.number(20, 3)),
    "numbers": make.block(5, make.block(1, "pads") + make.block(8, b"\0\1\2") + make.number(20, 7)),
    "a doc string of 127 bytes": make.block(6, "a" * 127),
    "a doc string of 128 bytes": make.block(6, "a" * 128),
    "a doc string of 129 bytes": make.block(6, "a" * 129),
    "an attribute of 150 bytes": make.block(5, b"".join(make.block(4, "a" * 48) for _ in range(3))),
}


@pytest.mark.parametrize("what", PLAIN)
def test_nodes_that_hold_nothing_take_no_memory(what: str) -> None:
    """A graph has very many of them, and they are not listed."""
    node = make.block(1, make.node("Relu", "y") + PLAIN[what])
    limits = ztensor.Limits(cost_floor=1 << 16, cost_factor=0)
    with ztensor.open(graph(*[node] * 1000, make.block(5, make.GOOD)), limits=limits) as reader:
        assert reader.keys() == ["good"]
        (nodes,) = [one for one in reader.unrepresented if one.kind == "graph node"]
        assert nodes.count == 1000


# Fields of an attribute before its tensor, in forms that no library writes. The last byte of each
# would begin a text of 42 bytes that contains the tensor.
ODD = {
    "a type of two bytes": b"\xa0\x01\x80\x0a",
    "a field of a number above 15": b"\x80\x01\x0a",
    "a number of two bytes": b"\x18\x80\x0a",
    "a text of 128 bytes": b"\x22\x80\x01" + b"a" * 127 + b"\x0a",
}


@pytest.mark.parametrize("what", ODD)
def test_a_tensor_is_found_after_unusual_fields(what: str) -> None:
    tensor = make.tensor("", make.FLOAT, [1], make.block(12, "a" * 27), make.raw(bytes(4)))
    assert len(tensor) == 41
    attribute = ODD[what] + make.block(5, tensor)
    reader = ztensor.open(graph(make.block(1, make.node("Relu", "y", attribute))))
    assert [reader[name].tolist() for name in reader] == [[0.0]]


def test_a_tensor_is_found_in_a_node_of_any_length_and_behind_a_number() -> None:
    value = make.block(1, "value") + make.block(5, DENSE)
    ends = [make.block(6, "a" * length) for length in (0, 1, 90, 4000, 4096, 20_000)]
    nodes = [make.node("Constant", f"c{place}", value) + end for place, end in enumerate(ends)]
    attribute = make.block(5, value)
    # As a length the number would lead behind the attribute.
    nodes.append(make.number(9, len(attribute)) + attribute + make.node("Constant", "c6"))
    assert ztensor.open(make.model(nodes=tuple(nodes))).keys() == [
        f"c{place}" for place in range(7)
    ]


def test_an_attribute_whose_text_leads_out_of_it_is_refused() -> None:
    node = make.node("Relu", "y") + make.block(5, b"\x22\x08abc") + make.block(6, "xyz")
    with pytest.raises(ztensor.FormatError):
        ztensor.open(graph(make.block(1, node)))


def test_tensors_of_the_main_graph_keep_their_names() -> None:
    """Tensors of nodes get other names, wherever in the graph the node is."""
    held = make.block(1, make.node("Add", "good", make.block(1, "x") + make.block(5, DENSE)))
    other = make.tensor("good.x", make.FLOAT, [6], make.raw(make.F32))
    for fields in ([held, held, make.block(5, other)], [make.block(5, other), held, held]):
        reader = ztensor.open(graph(*fields))
        assert set(reader) == {"good.x", "good.x#2", "good.x#3"}
        assert reader["good.x"].shape == (6,)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_constant_has_a_name_that_no_initializer_has(is_first: bool) -> None:
    fields = [make.block(1, make.node("Constant", "good", make.VALUE)), make.block(5, make.GOOD)]
    with refused(ztensor.FormatError, Reason.DUPLICATE_NAME):
        ztensor.open(graph(*(fields if is_first else fields[::-1])))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_graphs_are_nested_as_deep_as_is_allowed(depth: int) -> None:
    inner = make.block(5, make.GOOD)
    for _ in range(depth):
        inner = make.block(1, make.node("If", "y", make.block(1, "then") + make.block(6, inner)))
    limits = ztensor.Limits(depth=2)
    if depth <= 2:
        reader = ztensor.open(graph(inner), limits=limits)
        assert reader.keys() == ["y.then." * depth + "good"]
        return
    with refused(ztensor.LimitError, Reason.LIMIT_DEPTH):
        ztensor.open(graph(inner), limits=limits)


# --- Fields of an initializer ---------------------------------------------------------------


def test_an_empty_field_of_data_is_no_data() -> None:
    """Some writers leave `raw_data` there, empty, beside the numbers."""
    for fields in (
        [make.raw(make.F32), make.block(4, b"")],
        [make.raw(b""), make.block(4, make.F32)],
    ):
        data = make.model(make.tensor("a", make.FLOAT, [6], *fields))
        assert ztensor.open(data)["a"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.skipif(os.name == "nt", reason="files there have no such rights")
@pytest.mark.parametrize(("kind", "shape"), [(make.FLOAT, [2, 3]), (make.INT4, [48])])
def test_a_copy_has_no_more_rights_than_external_data(
    kind: int, shape: list[int], tmp_path: Path
) -> None:
    (tmp_path / "w.bin").write_bytes(make.F32)
    (tmp_path / "w.bin").chmod(0o600)
    where = make.external(location="w.bin")
    (tmp_path / "m.onnx").write_bytes(make.model(make.tensor("a", kind, shape, where)))
    (tmp_path / "m.onnx").chmod(0o644)
    ztensor.convert(tmp_path / "m.onnx", tmp_path / "out.zt")
    assert (tmp_path / "out.zt").stat().st_mode & 0o777 == 0o600
