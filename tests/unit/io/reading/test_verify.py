from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import FormatError, ObjectNotFoundError, Reason
from ztensor.ext import ENCODINGS, Component, FileObjects, Manifest, TensorObject, source_of
from ztensor.numpy import save
from ztensor.testing.builder import draft, stored, zstd_frame
from ztensor.typing import VerifyReport

CORPUS = Path(__file__).parents[3] / "corpus"
WRONG = "crc32c:0x00000000"


def found(report: VerifyReport) -> list[tuple[Reason, str | None, str | None]]:
    return [(p.reason, p.object_name, p.component) for p in report.problems]


def many_damages() -> bytes:
    made = draft("1.2.0")
    made.component("matrix")["digest"] = WRONG
    made.blobs["flags", "data"] = b"\x00\x01\x02\xff"
    made.component("empty")["digest"] = "blake9:zz"
    made.blobs["packed", "data"] = made.blobs["packed", "data"][:-1]
    made.component("small")["dtype"] = "f3"
    made.component("wave")["encoding"] = "lz4"
    made.component("wave")["digest"] = WRONG
    made.blobs["rows", "indices"] = stored("u64", 0, 3, 2)
    made.component("rows", "values")["digest"] = WRONG
    made.blobs["points", "coords"] = stored("u64", 1, 0, 0, 2)
    made.objects["groups"]["format"] = "later"
    made.component("groups", "scales")["digest"] = WRONG
    return made.to_bytes()


def test_every_problem_of_a_file_is_found_and_none_hides_another() -> None:
    with ztensor.open(many_damages()) as reader:
        report = reader.verify()
    assert not report.ok
    assert found(report) == [
        (Reason.DIGEST_MISMATCH, "matrix", "data"),
        (Reason.BOOL_VALUE, "flags", "data"),
        (Reason.ENCODING_TRUNCATED, "packed", "data"),
        (Reason.DIGEST_MISMATCH, "wave", "data"),
        (Reason.INDEX_RANGE, "rows", "indices"),
        (Reason.DIGEST_MISMATCH, "rows", "values"),
        (Reason.INDEX_RANGE, "points", "coords"),
        (Reason.DIGEST_MISMATCH, "groups", "scales"),
    ]
    assert [(p.reason, p.object_name) for p in report.unsupported] == [
        (Reason.UNKNOWN_DTYPE, "small"),
        (Reason.UNKNOWN_ENCODING, "wave"),
        (Reason.UNKNOWN_LAYOUT, "groups"),
    ]
    assert report.undigested == 1
    for problem in (*report.problems, *report.unsupported):
        assert problem.path[:2] == ("objects", problem.object_name)
        assert str(problem).isascii()
    assert report.problems[1].section == "1.2 section 2, Storage types"


@pytest.mark.parametrize("threads", [1, 2, 4, None])
def test_threads_change_nothing(threads: int | None) -> None:
    for data in (many_damages(), draft("1.1.0").to_bytes(), draft("0.1.0").to_bytes()):
        with ztensor.open(data) as reader:
            assert reader.verify(threads=threads) == reader.verify(threads=1)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("data", [many_damages(), save({}), save({"e": np.zeros(0)})])
def test_progress_only_rises_and_ends_at_the_whole(data: bytes, threads: int) -> None:
    calls: list[tuple[int, int]] = []
    with ztensor.open(data) as reader:
        report = reader.verify(threads=threads, progress=lambda *call: calls.append(call))
    assert calls == sorted(calls)
    assert {total for _, total in calls} <= {report.nbytes}
    if report.objects:
        assert calls[-1] == (report.nbytes, report.nbytes)


def test_a_name_that_is_asked_for_twice_is_checked_once() -> None:
    for data in (save({"a": np.zeros(3), "b": np.zeros(4)}), draft("1.2.0").to_bytes()):
        calls: list[tuple[int, int]] = []
        with ztensor.open(data) as reader:
            names = list(reader)[:2]
            report = reader.verify(
                [*names, names[0]], progress=lambda *at, calls=calls: calls.append(at)
            )
            assert report == reader.verify(names)
        assert report.objects == 2
        assert calls[-1] == (report.nbytes, report.nbytes)


@pytest.mark.parametrize(
    ("names", "objects"),
    [([], 0), (["matrix"], 1), ("matrix", 1), (("flags", "packed"), 2), (iter(["rows"]), 1)],
    ids=["none", "list", "one name", "tuple", "iterator"],
)
def test_some_objects(names: Any, objects: int) -> None:
    with ztensor.open(many_damages()) as reader:
        report = reader.verify(names)
    assert report.objects == objects
    assert report.ok is (objects == 0)


def test_a_report_of_files_counts_those_that_could_be_opened() -> None:
    with ztensor.open(save({"a": np.zeros(3), "b": np.zeros(4)})) as reader:
        good = reader.verify()
    error = FormatError("it is damaged", reason=Reason.DIGEST_MISMATCH)
    report = VerifyReport.of_files([("good.zt", good), ("damaged.zt", error)])
    assert [problem.path for problem in report.problems] == [("damaged.zt",)]
    for count in ("checked", "undigested", "objects", "nbytes"):
        assert getattr(report, count) == getattr(good, count)


def test_a_name_that_is_not_there() -> None:
    with ztensor.open(many_damages()) as reader, pytest.raises(ObjectNotFoundError):
        reader.verify(["matrix", "no such"])


def wrong_bools() -> bytes:
    made = draft("1.2.0")
    made.component("flags")["digest"] = WRONG
    made.blobs["flags", "data"] = b"\x00\x01\x02\xff"
    return made.to_bytes()


def wrong_compressed_bools() -> bytes:
    made = draft("1.2.0")
    made.objects["flags"]["components"]["data"] |= {"encoding": "zstd", "digest": WRONG}
    made.blobs["flags", "data"] = zstd_frame(b"\x00\x01\x02\xff")
    return made.to_bytes()


def wrong_bools_of_2() -> bytes:
    data = bytearray(save({"flags": np.ones(9, bool)}, version="2.1"))
    data[data.index(b"\1" * 9) + 4] = 7
    return bytes(data)


def wrong_indices() -> bytes:
    made = draft("1.2.0")
    made.blobs["rows", "indices"] = stored("u64", 0, 3, 2)
    made.component("rows", "indices")["digest"] = WRONG
    return made.to_bytes()


@pytest.mark.parametrize(
    ("make", "reason", "role"),
    [
        (wrong_bools, Reason.BOOL_VALUE, "data"),
        (wrong_compressed_bools, Reason.BOOL_VALUE, "data"),
        (wrong_bools_of_2, Reason.BOOL_VALUE, "data"),
        (wrong_indices, Reason.INDEX_RANGE, "indices"),
    ],
)
def test_a_wrong_digest_does_not_hide_wrong_elements(
    make: Callable[[], bytes], reason: Reason, role: str
) -> None:
    name = "rows" if role == "indices" else "flags"
    with ztensor.open(make()) as reader:
        assert found(reader.verify(name)) == [
            (Reason.DIGEST_MISMATCH, name, role),
            (reason, name, role),
        ]


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_wrong_elements_are_found_in_any_piece(compression: bool) -> None:
    """Behind the first megabyte, and in elements cut by the pieces they are decoded in."""
    flags = np.zeros(3_000_000, bool)
    flags[[0, 2_999_998]] = True  # 1 is right
    flags.view(np.uint8)[2_999_999] = 7
    coords = np.zeros(400_000, np.uint64)
    coords[399_999] = 5
    values = np.zeros(400_000, np.int8)
    good = ztensor.Tensor({"values": values, "coords": coords}, shape=(6,), format="sparse_coo")
    data = bytearray(save({"flags": flags, "points": good}, compression=compression))
    with ztensor.open(data) as reader:
        assert found(reader.verify()) == [(Reason.BOOL_VALUE, "flags", "data")]
        assert "2999999" in reader.verify().problems[0].message
        narrow = reader.objects.parts()[0].manifest.objects["points"]._replace(shape=(5,))
        objects: Any = reader.objects.parts()[0].manifest.objects
        objects["points"] = narrow
        assert found(reader.verify("points")) == [(Reason.INDEX_RANGE, "points", "coords")]
        assert "399999" in reader.verify("points").problems[0].message


def test_a_digest_whose_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = draft("1.2.0")
    made.component("matrix")["digest"] = "xxh3:0123456789abcdef"
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with ztensor.open(made.to_bytes()) as reader:
        report = reader.verify("matrix")
    assert (report.outcome, report.checked, report.undigested) == ("unchecked", 0, 1)
    assert [p.reason for p in report.unsupported] == [Reason.MISSING_DEPENDENCY]


@pytest.mark.parametrize(("length", "reasons"), [(8, 1), (12, 0), (16, 1), (None, 0)])
def test_a_stated_length_is_compared_with_the_layout(length: int | None, reasons: int) -> None:
    """How many values there are only the last pointer says."""
    made = draft("1.2.0")
    fields: dict[str, Any] = {"dtype": "f32", "encoding": "zstd"}
    if length is not None:
        fields["uncompressed_length"] = length
    made.objects["rows"]["components"]["values"] = fields
    made.blobs["rows", "values"] = zstd_frame(stored("f32", 0.5, 2, -1))
    made.objects["rows"]["components"]["indices"] = {"dtype": "u64", "encoding": "zstd"}
    made.blobs["rows", "indices"] = zstd_frame(stored("u64", 0, 2, 2))
    with ztensor.open(made.to_bytes()) as reader:
        assert found(reader.verify("rows")) == [(Reason.SIZE_MISMATCH, "rows", "values")] * reasons


def test_decoded_bytes_that_end_inside_an_element() -> None:
    """Only the bytes determine the number of elements."""
    made = draft("1.1.0")
    for role, dtype, content in (("values", "i32", bytes(7)), ("coords", "u64", bytes(16))):
        made.objects["points"]["components"][role] = {"dtype": dtype, "encoding": "zstd"}
        made.blobs["points", role] = zstd_frame(content)
    with ztensor.open(made.to_bytes()) as reader:
        assert found(reader.verify("points")) == [(Reason.SIZE_MISMATCH, "points", "values")]
        with refused(ztensor.FormatError, Reason.SIZE_MISMATCH):
            reader.read("points")


def test_a_sparse_bomb_is_walked_in_little_memory() -> None:
    """A 1.1 file does not state the number of values; 384 MiB decode from 40 KiB."""
    encode = ENCODINGS["zstd"].encode
    frame = b"".join(encode(memoryview(bytes(4 << 20)), level=3, frame_bytes=4 << 20))
    made = draft("1.1.0")
    for role, dtype, count in (("values", "f32", 32), ("coords", "u64", 64)):
        made.objects["points"]["components"][role] = {"dtype": dtype, "encoding": "zstd"}
        made.blobs["points", role] = frame * count
    made.objects["points"]["shape"] = [1]
    data = made.to_bytes()
    assert len(data) < 100_000
    with ztensor.open(data) as reader, traced() as memory:
        report = reader.verify("points")
        _, peak = memory()
    assert report.ok
    assert peak < 32 << 20


def test_what_users_wrote_into_their_arrays_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(draft("1.2.0").to_bytes())
    uses: list[Callable[[Any], Any]] = [lambda array: array.__iadd__(1), lambda array: array.sort()]
    with ztensor.open(tmp_path / "m.zt", verify=True) as reader:
        for use in uses:
            use(reader["matrix"])
        assert reader.verify().ok
        assert reader.read_numpy("matrix", copy=True).tolist() == [[1, -2, 3], [4, 5, -6]]


# --- Outcomes -------------------------------------------------------------------------------


def outcome(data: bytes) -> tuple[str, dict[str, str]]:
    with ztensor.open(data) as reader:
        report = reader.verify()
        return report.outcome, dict(report.unchecked)


def test_ok_means_that_every_byte_is_under_a_digest() -> None:
    tensors = {"a": np.arange(4.0), "empty": np.zeros((0, 3))}
    assert outcome(save(tensors)) == ("ok", {})
    assert outcome(save(tensors, checksum=None)) == ("unchecked", {"a": "it has no digest"})
    assert outcome(save({"empty": np.zeros(0)}, checksum=None)) == ("ok", {})
    assert outcome(save(tensors, version="0.1.0", checksum=None))[0] == "unchecked"
    made = draft("1.2.0")
    made.component("matrix")["digest"] = "future:0123456789abcdef"
    kind, why = outcome(made.to_bytes())
    assert (kind, list(why)) == ("unchecked", ["matrix"])


def test_one_object_without_a_digest_is_enough_and_damage_comes_first() -> None:
    buffer = io.BytesIO()
    with ztensor.Writer(buffer) as writer:
        writer.write("with", np.arange(4.0))
        writer.write("without", np.arange(4.0), checksum=False)
    data = bytearray(buffer.getvalue())
    assert outcome(bytes(data)) == ("unchecked", {"without": "it has no digest"})
    data[64] ^= 1
    assert outcome(bytes(data))[0] == "damaged"


@pytest.mark.parametrize(
    ("count", "bits", "is_right"),
    [(3, 0x00, True), (3, 0x10, False), (3, 0xF0, False), (2, 0xF0, True), (4, 0xF0, True)],
)
def test_padding_bits_of_2_are_zero(count: int, bits: int, is_right: bool) -> None:
    """Of three elements of four bits, the upper half of the second byte is padding."""
    data = bytearray(
        save({"w": np.zeros(count, ml_dtypes.float4_e2m1fn)}, version="2.1", checksum=None)
    )
    with ztensor.open(bytes(data)) as reader:
        place = reader.location("w")
    data[place.offset + place.length - 1] |= bits
    report = ztensor.open(bytes(data)).verify()
    assert [p.reason for p in report.problems] == ([] if is_right else [Reason.PADDING_VALUE])


@pytest.mark.wing
def test_an_archive_has_a_sum_over_each_tensor() -> None:
    """Each storage is one member, from the first to the last byte under the member's CRC."""
    for path in sorted((CORPUS / "foreign" / "accept" / "pt").glob("*.pt")):
        with ztensor.open(path) as reader:
            unchecked = reader.verify().unchecked
        assert bool(unchecked) is (path.stem == "legacy"), path.name  # not an archive


def test_a_checksum_of_the_file_covers_whole_components_only() -> None:
    extents = {
        "before": (0, 4),
        "first": (4, 12),
        "all": (4, 16),
        "over": (12, 9),
        "next": (24, 8),
    }
    objects = {
        name: TensorObject((length,), "dense", {"data": Component("u8", offset, length)})
        for name, (offset, length) in extents.items()
    }
    sums = [(4, 16, lambda: None)]
    source = source_of(bytes(32), mapped=True)
    file = FileObjects(source, Manifest("", objects, None), format="other", sums=sums)
    assert set(file.check().unchecked) == {"before", "over", "next"}


def test_attributes_are_looked_at_where_all_objects_are() -> None:
    wrong = FormatError("it is odd", reason=Reason.FIELD_VALUE)
    file = FileObjects(
        source_of(b"", mapped=True),
        Manifest("", {}, None),
        format="other",
        faults=lambda: {"note": wrong},
    )
    assert [problem.path for problem in file.check().problems] == [("attributes", "note")]
    assert file.check([]).problems == ()


def test_objects_over_the_same_bytes_are_held_to_their_own_shapes() -> None:
    coords, values = np.array([[0, 5]], np.uint64), np.ones(2, np.int8)
    points = ztensor.Tensor({"values": values, "coords": coords}, shape=(6,), format="sparse_coo")
    with ztensor.open(save({"a": points, "b": points})) as reader:
        objects: Any = reader.objects.parts()[0].manifest.objects
        objects["b"] = objects["a"]._replace(shape=(5,))
        assert found(reader.verify()) == [(Reason.INDEX_RANGE, "b", "coords")]


@pytest.mark.parametrize(
    ("version", "outcome"), [("1.1", "ok"), ("1.2", "ok"), ("2.1", "unchecked")]
)
def test_what_may_not_be_decoded_is_ok_where_its_digest_is_over_what_is_stored(
    version: str, outcome: str
) -> None:
    data = save({"x": np.zeros(10_000)}, version=version, compression=True)
    with ztensor.open(data, limits=ztensor.Limits(decoded_bytes=1000)) as reader:
        report = reader.verify()
    assert report.outcome == outcome
    assert [problem.reason for problem in report.unsupported] == [Reason.LIMIT_DECODED]
