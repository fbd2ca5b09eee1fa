"""What SciPy's save_npz writes is one sparse object, and load_npz reads what is exported."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.refusals import refused
from ztensor.testing.damage import damaged, random_damage
from ztensor.testing.promise import exercise

sparse: Any = pytest.importorskip("scipy.sparse", reason="SciPy is optional")

DENSE = np.zeros((6, 8), np.float32)
DENSE[[0, 0, 2, 3, 5], [1, 7, 0, 4, 4]] = [1, 2, 3, 4, -5.5]
BLOCKS = np.kron(np.array([[0, 1], [2, 0], [0, 3]]), np.ones((2, 4)))
CUBE = np.zeros((2, 3, 4), np.int16)
CUBE[[0, 1, 1], [2, 0, 1], [3, 1, 1]] = [7, 8, 9]

OURS = {"csr": "sparse_csr", "coo": "sparse_coo"}
ARRAYS: dict[str, Any] = {
    **{
        f"{kind} {sort}": getattr(sparse, f"{kind}_{sort}")(BLOCKS if kind == "bsr" else DENSE)
        for kind in ("csr", "coo", "csc", "bsr", "dia")
        for sort in ("array", "matrix")
    },
    "coo of 3 dimensions": sparse.coo_array(CUBE),
    "coo of 1 dimension": sparse.coo_array(CUBE[0, 2]),
    "csr of 1 dimension": sparse.csr_array(DENSE[0]),
    "dia of nothing": sparse.dia_array((3, 4), dtype=np.float64),
    "bsr of nothing": sparse.bsr_array((4, 4), blocksize=(2, 2), dtype=np.float64),
    "csc of nothing": sparse.csc_array((0, 4), dtype=np.float64),
    "dia of wide diagonals": sparse.dia_array((np.arange(21.0).reshape(3, 7), [-2, 0, 3]), (4, 5)),
    "csc with repeated places": sparse.csc_array(
        (np.ones(4), [0, 0, 2, 2], [0, 2, 4]), shape=(3, 2)
    ),
    "csr of nothing": sparse.csr_array((3, 4), dtype=np.float64),
    "coo of nothing": sparse.coo_array((3, 0), dtype=np.float64),
    "coo without rows": sparse.coo_array((0, 3), dtype=np.float64),
    "complex": sparse.csr_array(DENSE.astype(np.complex64) * 1j),
    "bool": sparse.coo_array(DENSE != 0),
    "int8": sparse.csr_array(DENSE.astype(np.int8)),
}


def saved(matrix: Any, *, compressed: bool = True) -> bytes:
    buffer = io.BytesIO()
    sparse.save_npz(buffer, matrix, compressed=compressed)
    return buffer.getvalue()


def rewritten(data: bytes, changes: Mapping[str, Any], *, dropped: str = "") -> bytes:
    """Return the archive with other arrays in it, as numpy.savez would have written it."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files if name != dropped}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, **changes})
    return buffer.getvalue()


def same(ours: Any, theirs: Any) -> None:
    assert ours.format == theirs.format
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())


@pytest.mark.parametrize("compressed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("matrix", ARRAYS.values(), ids=list(ARRAYS))
def test_one_sparse_object(matrix: Any, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    path.write_bytes(saved(matrix, compressed=compressed))
    with ztensor.open(path) as reader:
        assert list(reader) == ["array"]
        tensor: Any = reader["array"]
        is_ours = matrix.format in OURS and (matrix.format == "coo" or matrix.ndim == 2)
        word = OURS[matrix.format] if is_ours else f"scipy.sparse_{matrix.format}"
        assert tensor.format == reader.metadata("array").format == word
        assert tensor.attributes["scipy"] == type(matrix).__name__
        assert reader.unrepresented == ()
        same(tensor.to_scipy(), matrix)
        np.testing.assert_array_equal(tensor.to_dense(), matrix.toarray())
        assert reader.metadata("array").dtype == tensor.dtype
        report = reader.verify()
        assert not report.problems
        assert report.outcome == "ok"
        copied = reader.read("array", copy=True)
        assert all(
            np.array_equal(copied.components[role], tensor.components[role])
            for role in tensor.components
        )
    loaded: dict[str, Any]
    for loaded in (ztensor.numpy.load_file(path), ztensor.numpy.load(path.read_bytes())):
        same(loaded["array"].to_scipy(), matrix)


@pytest.mark.parametrize("compressed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("matrix", ARRAYS.values(), ids=list(ARRAYS))
def test_there_and_back(matrix: Any, compressed: bool, tmp_path: Path) -> None:
    path, ours, back = tmp_path / "m.npz", tmp_path / "m.zt", tmp_path / "back.npz"
    path.write_bytes(saved(matrix, compressed=compressed))
    assert ztensor.convert(path, ours, check=True, strict=True).is_lossless
    same(ztensor.open(ours).read("array").to_scipy(), matrix)
    assert ztensor.convert(ours, back, check=True, strict=True).is_lossless
    again = sparse.load_npz(back)
    same(again, matrix)
    assert type(again) is type(matrix)
    assert zipfile.ZipFile(back).testzip() is None
    assert ztensor.convert(path, tmp_path / "direct.npz", strict=True).is_lossless
    assert (tmp_path / "direct.npz").stat().st_size > 0
    same(sparse.load_npz(tmp_path / "direct.npz"), matrix)


@pytest.mark.parametrize("compressed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("kind", OURS)
def test_rows_are_sliced(kind: str, compressed: bool) -> None:
    with ztensor.open(saved(sparse.csr_array(DENSE).asformat(kind), compressed=compressed)) as r:
        part: Any = r.get_slice("array")
        for key in (slice(1, 4), slice(None, None, -1), 2, [5, 0, 0]):
            rows = DENSE[key].reshape(-1, 8)
            np.testing.assert_array_equal(part[key].to_dense().reshape(-1, 8), rows)


def test_stored_members_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    path.write_bytes(saved(sparse.csr_array(DENSE), compressed=False))
    with ztensor.open(path) as reader:
        for role, component in reader.metadata("array").components.items():
            assert component.encoding == "raw"
            place = reader.location("array", role)
            stored = path.read_bytes()[place.offset :][: place.length]
            assert stored == reader.read("array").components[role].tobytes()
        tensor = reader["array"]
    assert pickle.loads(pickle.dumps(tensor)).to_scipy().shape == (6, 8)


def test_older_releases_wrote_the_format_as_text(tmp_path: Path) -> None:
    data = saved(sparse.csr_matrix(DENSE))
    for text in (np.array("csr"), np.array("csr", ">U3"), np.array([b"csr"])):
        with ztensor.open(rewritten(data, {"format": text})) as reader:
            np.testing.assert_array_equal(reader.read("array").to_dense(), DENSE)


def test_big_endian_parts() -> None:
    matrix = sparse.coo_array(DENSE)
    swapped = {"row": matrix.row.astype(">i4"), "col": matrix.col.astype(">i4")}
    swapped |= {"data": matrix.data.astype(">f4"), "shape": np.array([6, 8], ">i8")}
    with ztensor.open(rewritten(saved(matrix), swapped)) as reader:
        np.testing.assert_array_equal(reader.read("array").to_dense(), DENSE)


STAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "another member": ("csr", {"more": np.arange(2)}, ""),
    "no shape": ("csr", {}, "shape"),
    "no data": ("csr", {}, "data"),
    "no pointers": ("csr", {}, "indptr"),
    "an unknown format": ("csr", {"format": np.array(b"lil")}, ""),
    "a format of other parts": ("csr", {"format": np.array(b"coo")}, ""),
    "a format that is an object": ("csr", {"format": np.array({}, object)}, ""),
    "a format of two": ("csr", {"format": np.array([b"csr", b"csr"])}, ""),
    "a long format": ("csr", {"format": np.array(b"csr" + b" " * 2000)}, ""),
    "a format that is no ASCII": ("csr", {"format": np.array(b"\xff\xfe")}, ""),
    "a negative shape": ("csr", {"shape": np.array([-1, 8])}, ""),
    "a shape of fractions": ("csr", {"shape": np.array([6.0, 8.0])}, ""),
    "a shape without dimensions": ("csr", {"shape": np.array(6)}, ""),
    "a long shape": ("csr", {"shape": np.ones(200, np.int64)}, ""),
    "more rows": ("csr", {"shape": np.array([7, 8])}, ""),
    "very many rows": ("csr", {"shape": np.array([(1 << 63) - 1, 8])}, ""),
    "three dimensions": ("csr", {"shape": np.array([6, 8, 1])}, ""),
    "fewer columns than values": ("csr", {"indices": np.zeros(4, np.int32)}, ""),
    "fractional columns": ("csr", {"indices": np.zeros(5)}, ""),
    "data of two dimensions": ("csr", {"data": np.zeros((5, 1))}, ""),
    "data of texts": ("csr", {"data": np.array(["a"] * 5)}, ""),
    "rows of another type than columns": ("coo", {"row": np.zeros(5, np.int64)}, ""),
    "rows of another count": ("coo", {"row": np.zeros(4, np.int32)}, ""),
    "blocks that do not fit": ("bsr", {"shape": np.array([6, 7])}, ""),
    "blocks of nothing": ("bsr", {"data": np.zeros((6, 0, 4))}, ""),
    "offsets of another count": ("dia", {"offsets": np.arange(2)}, ""),
    "a flag that is too long": ("csr", {"_is_array": np.zeros(2000, bool)}, ""),
}


@pytest.mark.parametrize(("kind", "changes", "dropped"), STAYS.values(), ids=list(STAYS))
def test_what_does_not_fit_stays_arrays(kind: str, changes: dict[str, Any], dropped: str) -> None:
    data = rewritten(saved(ARRAYS[f"{kind} array"]), changes, dropped=dropped)
    with np.load(io.BytesIO(data), allow_pickle=True) as archive:
        names = set(archive.files)
    with ztensor.open(data) as reader:
        assert set(reader) == names
    exercise(data)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a column outside": ("csr", {"indices": np.full(5, 8, np.int32)}, "index_range"),
    "a negative column": ("csr", {"indices": np.full(5, -1, np.int32)}, "index_range"),
    "falling pointers": ("csr", {"indptr": np.array([0, 3, 2, 3, 3, 4, 5])}, "index_pointers"),
    "too few values": ("csr", {"indptr": np.array([0, 2, 2, 3, 4, 4, 4])}, ""),
    "a row outside": ("coo", {"row": np.full(5, 6, np.int32)}, "index_range"),
    "a column of coo outside": ("coo", {"col": np.full(5, 8, np.int32)}, "index_range"),
}


@pytest.mark.parametrize(("kind", "changes", "reason"), WRONG.values(), ids=list(WRONG))
def test_wrong_indices_are_refused(kind: str, changes: dict[str, Any], reason: str) -> None:
    data = rewritten(saved(ARRAYS[f"{kind} array"]), changes)
    with ztensor.open(data) as reader:
        assert reader.keys() == ["array"]
        with pytest.raises(ztensor.FormatError) as caught:
            reader.read("array").to_scipy()
        assert not reason or caught.value.reason == reason
        assert reader.verify().problems
    exercise(data)


WRONG_THEIRS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a row of csc outside": ("csc", {"indices": np.full(5, 6, np.int32)}, "index_range"),
    "falling pointers": (
        "csc",
        {"indptr": np.array([0, 2, 1, 1, 1, 4, 4, 4, 5])},
        "index_pointers",
    ),
    "a block outside": ("bsr", {"indices": np.full(6, 4, np.int32)}, "index_range"),
    "a diagonal above": ("dia", {"offsets": np.array([-2, -1, 1, 9])}, "index_range"),
    "a diagonal below": ("dia", {"offsets": np.array([-(1 << 63), -1, 1, 7])}, "index_range"),
}


@pytest.mark.parametrize(
    ("kind", "changes", "reason"), WRONG_THEIRS.values(), ids=list(WRONG_THEIRS)
)
def test_scipy_gets_no_wrong_indices(kind: str, changes: dict[str, Any], reason: str) -> None:
    data = rewritten(saved(ARRAYS[f"{kind} array"]), changes)
    with ztensor.open(data) as reader:
        with refused(ztensor.errors.LayoutError, reason):
            reader.read("array")
        assert [problem.reason for problem in reader.verify().problems] == [reason]
        assert reader.unrepresented == ()
    exercise(data)


@pytest.mark.parametrize("values_shape", [[5], [3, 2, 5], "x", [-3, 2, 4], [1 << 70, 0, 4], None])
def test_a_shape_of_blocks_that_lies(values_shape: Any) -> None:
    matrix = ARRAYS["bsr array"]
    tensor = ztensor.Tensor(
        {"values": matrix.data.reshape(-1), "indices": matrix.indices, "indptr": matrix.indptr},
        shape=matrix.shape,
        format="scipy.sparse_bsr",
        attributes={} if values_shape is None else {"values_shape": values_shape},
    )
    for use in (tensor.to_scipy, tensor.to_dense, tensor.require_valid):
        with pytest.raises(ztensor.errors.LayoutError):
            use()


@pytest.mark.parametrize("encoding", ["raw", "zstd"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("bsr", {"attributes": {"values_shape": [6, 2, 3]}}),
        ("bsr", {"attributes": {"values_shape": "x"}}),
        ("bsr", {"attributes": {"values_shape": [6, 0, 0]}}),
        ("bsr", {"attributes": {}}),
        ("bsr", {"shape": (6,)}),
        ("bsr", {"shape": (7, 8)}),
        ("csc", {"shape": (6, 8, 1)}),
        ("csc", {"shape": (6, 9)}),
        ("csr", {"shape": (8, 1)}),
        ("dia", {"shape": (8,)}),
        ("dia", {"attributes": {"values_shape": [3, 8]}}),
    ],
)
def test_a_file_of_ours_that_lies(
    kind: str, change: dict[str, Any], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the decoded lengths are known, as in 1.2, or not, as in 1.1."""
    name = "csr of 1 dimension" if kind == "csr" else f"{kind} array"
    with ztensor.open(saved(ARRAYS[name])) as reader:
        good = reader["array"]
    for version in ("1.1.0", "1.2.0"):
        with monkeypatch.context() as patch:
            patch.setattr(ztensor.Tensor, "require_valid", lambda _: None)
            data = written(good, change, version, is_zstd=encoding == "zstd")
        found = exercise(data)
        assert not found.verified
        with pytest.raises(ztensor.FormatError), ztensor.open(data) as reader:
            reader.read("array")


def written(good: Any, change: dict[str, Any], version: str, *, is_zstd: bool) -> bytes:
    """Return a file whose one object says something else of its parts than is so."""
    buffer = io.BytesIO()
    with ztensor.Writer(buffer, version=version, compression=is_zstd) as writer:
        told = {"shape": good.shape, "attributes": good.attributes, **change}
        wrong = ztensor.Tensor(dict(good.components), format=good.format, **told)
        writer.write("array", wrong)
    return buffer.getvalue()


def test_a_missing_part_of_a_tensor() -> None:
    tensor = ztensor.Tensor({"values": np.ones(1)}, shape=(1, 1), format="scipy.sparse_csc")
    with pytest.raises(ztensor.errors.LayoutError, match="missing"):
        tensor.to_scipy()


@pytest.mark.parametrize("member", ["format", "shape", "_is_array", "row", "data"])
def test_damage_is_noticed(member: str) -> None:
    data = bytearray(saved(ARRAYS["coo array"], compressed=False))
    entry = zipfile.ZipFile(io.BytesIO(data)).getinfo(f"{member}.npy")
    data[data.index(b"\x93NUMPY", entry.header_offset) + entry.file_size - 1] ^= 2
    if member in ("row", "data"):
        with ztensor.open(bytes(data)) as reader:
            assert reader.verify().problems
            with pytest.raises(ztensor.FormatError):
                reader.read("array", copy=True)
        return
    with pytest.raises(ztensor.FormatError) as caught:
        ztensor.open(bytes(data))
    assert (caught.value.reason, caught.value.object_name) == ("digest_mismatch", member)


def test_no_damage_gives_another_error() -> None:
    good = [
        saved(ARRAYS[f"{kind} array"], compressed=compressed)
        for kind in ("csr", "coo", "bsr", "dia")
        for compressed in (False, True)
    ]
    random, opened = Random(7), 0
    limits = ztensor.Limits(decoded_bytes=1 << 20)
    for index in range(400):
        data = good[index % len(good)]
        case = damaged(data, [random_damage(random, len(data)) for _ in range(1 + index % 2)])
        opened += exercise(case, limits=limits).opened
    assert opened > 20


# --- Writing --------------------------------------------------------------------------------


def test_a_name_is_lost_and_said(tmp_path: Path) -> None:
    ztensor.numpy.save_file(
        {"w": ztensor.Tensor.from_scipy(sparse.csr_array(DENSE))}, tmp_path / "a.zt"
    )
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npz", check=True)
    assert [loss.object_name for loss in report.lost] == ["w"]
    same(sparse.load_npz(tmp_path / "a.npz"), sparse.csr_array(DENSE))


NOT_THEIRS: dict[str, Any] = {
    "float16": ztensor.Tensor.csr(np.ones(1, np.float16), [1], [0, 1, 1], (2, 4)),
    "a scalar": ztensor.Tensor.coo(np.ones(1), [], ()),
    "longer than 63 bits": ztensor.Tensor.coo(np.ones(1), [[0]], (1 << 63,)),
    "another layout": ztensor.Tensor({"a": np.ones(2)}, shape=(2,), format="mine"),
}


def test_an_object_without_parts_is_no_matrix(tmp_path: Path) -> None:
    nothing = ztensor.Tensor({}, shape=(2,), format="mine")
    ztensor.numpy.save_file({"array": nothing}, tmp_path / "a.zt")
    assert ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npz").lost


@pytest.mark.parametrize(
    "attributes", [{"scipy": 5}, {"scipy": "csc_array"}, {"unit": "m"}, {"values_shape": [5]}]
)
def test_attributes_that_are_not_scipys_are_lost_and_said(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    tensor = ztensor.Tensor.from_scipy(ARRAYS["csr array"], attributes=attributes)
    ztensor.numpy.save_file({"array": tensor}, tmp_path / "a.zt")
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npz")
    assert [loss.object_name for loss in report.lost] == ["array"]
    assert type(sparse.load_npz(tmp_path / "a.npz")) is sparse.csr_array


@pytest.mark.parametrize("tensor", NOT_THEIRS.values(), ids=list(NOT_THEIRS))
def test_what_scipy_cannot_say_becomes_arrays(tensor: Any, tmp_path: Path) -> None:
    ztensor.numpy.save_file({"array": tensor}, tmp_path / "a.zt")
    report = ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npz")
    assert report.lost
    with np.load(tmp_path / "a.npz") as archive:
        assert all(name.startswith("array.") for name in archive.files)


def test_two_become_arrays(tmp_path: Path) -> None:
    both = dict.fromkeys("ab", ztensor.Tensor.from_scipy(sparse.csr_array(DENSE)))
    ztensor.numpy.save_file(both, tmp_path / "a.zt")
    assert ztensor.convert(tmp_path / "a.zt", tmp_path / "a.npz").lost
