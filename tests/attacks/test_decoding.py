"""Files with valid or nearly valid bytes that make reading wrong or expensive."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.shapes.containers import over
from tests.refusals import refused
from ztensor.errors import ArgumentValueError, DigestMismatchError, LimitError, Reason
from ztensor.ext import ALGORITHMS, ENCODINGS
from ztensor.testing.builder import draft, stored

WRONG = "crc32c:0x00000000"


def build(objects: Mapping[str, tuple[list[int], Mapping[str, Any], dict[str, Any]]]) -> bytes:
    """Return a 1.2 file of objects: shape, role to (fields, stored bytes), more fields."""
    made = draft("1.2.0")
    made.objects.clear()
    made.blobs.clear()
    for name, (shape, parts, fields) in objects.items():
        made.add(name, shape, parts, **fields)
    return made.to_bytes()


def sharing(count: int, blob: bytes, length: int) -> bytes:
    """Return a file of `count` equal objects over one compressed blob of float32."""
    fields = {"encoding": "zstd", "digest": ALGORITHMS["crc32c"].of([blob])}
    return over(blob, {str(number): (length, fields) for number in range(count)})


# --- Digests of bytes that several objects share ------------------------------------------------


def two_digests(encoding: str) -> bytes:
    """Return a file of two objects over the same bytes: the second's digest is wrong."""
    values = np.arange(64, dtype=np.float32).tobytes()
    blob = b"".join(ENCODINGS[encoding].encode(memoryview(values), level=1))
    digests = {"good": ALGORITHMS["crc32c"].of([blob]), "bad": WRONG}
    return over(
        blob,
        {name: (64, {"digest": text, "encoding": encoding}) for name, text in digests.items()},
    )


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("encoding", ["raw", "zstd"])
def test_a_wrong_digest_behind_a_right_one_of_the_same_bytes(
    tmp_path: Path, encoding: str, mapped: bool
) -> None:
    """Two objects over the same bytes: the second's wrong digest hides behind the first's."""
    path = tmp_path / "m.zt"
    path.write_bytes(two_digests(encoding))
    with ztensor.open(path, mmap=mapped, verify=True) as reader:
        for read in (
            lambda name: reader[name],
            reader.read,
            lambda name: reader.read_numpy(name, copy=True),
            lambda name: reader.get_slice(name)[3:5],
            lambda name: b"".join(reader.decoded_chunks(name)),
        ):
            read("good")
            with pytest.raises(DigestMismatchError):
                read("bad")
        assert [p.object_name for p in reader.verify().problems] == ["bad"]
    for copy in (True, False):
        with pytest.raises(DigestMismatchError):
            ztensor.numpy.load_file(path, copy=copy, verify=True)
    with pytest.raises(DigestMismatchError):
        ztensor.content_hash(path)


def test_a_copy_keeps_every_digest_of_shared_bytes(tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.float32).tobytes()
    texts = {
        "crc": ALGORITHMS["crc32c"].of([values]),
        "sha": ALGORITHMS["sha256"].of([values]),
        "later": "blake9:zz",
    }
    data = over(values, {name: (64, {"digest": digest}) for name, digest in texts.items()})
    (tmp_path / "m.zt").write_bytes(data)
    ztensor.compact(tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        found = {name: reader.metadata(name).components["data"] for name in reader}
        assert {name: part.digest for name, part in found.items()} == texts
        assert len({part.offset for part in found.values()}) == 1
        assert not reader.verify().problems


# --- Integers of every width --------------------------------------------------------------------


# --- Shapes without elements --------------------------------------------------------------------

HUGE = 1 << 62


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("dtype", ["f32", "bool", "fp4"])
@pytest.mark.parametrize("shape", [[0, HUGE], [HUGE, 0], [0, 1 << 40], [3, 0, 1 << 33]])
def test_indexing_where_there_is_nothing(
    tmp_path: Path, shape: list[int], dtype: str, mapped: bool
) -> None:
    """A shape of no elements and a huge axis: an index out of bounds takes an exbibyte."""
    fields = {"dtype": "u8", "type": "f4_e2m1"} if dtype == "fp4" else {"dtype": dtype}
    (tmp_path / "m.zt").write_bytes(build({"x": (shape, {"data": (fields, b"")}, {})}))
    empty_axis = shape.index(0)
    lead = (slice(None),) * empty_axis
    with ztensor.open(tmp_path / "m.zt", mmap=mapped) as reader:
        part = reader.get_slice("x")
        for wrong in ([0], [0, 0], np.array([[0], [-1]]), 0, -1):
            with pytest.raises(ArgumentValueError):
                part[(*lead, wrong)]
        inside: list[Any] = [slice(None), slice(None, None, -HUGE), [], slice(5, 9)]
        for good in inside:
            with contextlib.suppress(LimitError):  # NumPy has no such shape
                assert part[(*lead, good)].size == 0
        assert reader.verify().ok


def test_an_array_that_does_not_fit_names_its_size() -> None:
    """A file of 600 bytes with a sparse object of 2^40 elements: a bare MemoryError."""
    objects: dict[str, Any] = {
        "coo": (
            [1 << 60],
            {
                "coords": ({"dtype": "u64"}, stored("u64", 7)),
                "values": ({"dtype": "f32"}, stored("f32", 1.5)),
            },
            {"format": "sparse_coo"},
        ),
        "csr": (
            [2, 1 << 59],
            {
                "indptr": ({"dtype": "u64"}, stored("u64", 0, 1, 1)),
                "indices": ({"dtype": "u64"}, stored("u64", 7)),
                "values": ({"dtype": "f32"}, stored("f32", 1.5)),
            },
            {"format": "sparse_csr"},
        ),
    }
    with ztensor.open(build(objects)) as reader:
        tensor: Any
        for tensor in (*reader.read(list(reader)).values(), reader.get_slice("csr")[0:1]):
            with pytest.raises(LimitError) as caught:
                tensor.to_dense()
            assert "bytes" in str(caught.value.found)
        assert reader.verify().ok


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
def test_a_result_that_does_not_fit(tmp_path: Path, mapped: bool) -> None:
    """An index of two long lists with a result of 4 TiB: a bare MemoryError."""
    path = tmp_path / "m.zt"
    ztensor.numpy.save_file({"x": np.zeros((4, 4), np.uint8)}, path)
    places = np.zeros((1 << 21, 1), np.int64)
    with ztensor.open(path, mmap=mapped) as reader, pytest.raises(LimitError):
        reader.get_slice("x")[places, places.T]


# --- Windows ------------------------------------------------------------------------------------

BLOCK = 128 << 10


def far_window(blocks: int, *, window_log: int = 27) -> bytes:
    """Return a frame of repeated zeros that declares a window, and no content size."""
    body = b"".join(
        (BLOCK << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") + b"\0"
        for number in range(blocks)
    )
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + body


def windows(count: int, blocks: int) -> bytes:
    fields = {"dtype": "u8", "encoding": "zstd"}
    part = {"data": (fields, far_window(blocks))}
    return build({str(number): ([BLOCK * blocks], part, {}) for number in range(count)})


_MEASURED = """
import resource, sys, ztensor
work = {
    "verify": lambda path: ztensor.open(path).verify(threads=4).ok,
    "stats": lambda path: ztensor.stats(path, bins=0, threads=4),
    "convert": lambda path: ztensor.convert(path, path + ".zt", compression=1, threads=4),
}[sys.argv[1]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert work(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB")
@pytest.mark.parametrize("verb", ["verify", "stats", "convert"])
def test_windows_of_all_threads_together(tmp_path: Path, verb: str) -> None:
    """A file of 17 kB with frames that keep 128 MiB each: four threads took 507 MiB."""
    path = tmp_path / "m.zt"
    path.write_bytes(windows(4, 1040))
    run = subprocess.run(
        [sys.executable, "-c", _MEASURED, verb, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(run.stdout) < 240  # one window, and one chunk per thread


@pytest.mark.slow
def test_very_many_empty_frames() -> None:
    """Hundreds of thousands of empty frames, each with a window of 128 MiB: linear time."""
    empty = b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3]) + b"\x01\x00\x00"
    values = b"".join(ENCODINGS["zstd"].encode(memoryview(bytes(64)), level=1))
    fields = {"dtype": "u8", "encoding": "zstd"}

    def seconds(count: int) -> float:
        data = build({"x": ([64], {"data": (fields, empty * count + values)}, {})})
        with ztensor.open(data) as reader:
            begin = time.process_time()
            assert not reader["x"].any()
            return time.process_time() - begin

    assert seconds(24_000) < 20 * seconds(4_000) + 0.5


# --- Bytes that many objects share ---------------------------------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the lengths of the pieces that zstd decodes."""
    lengths: list[int] = []
    real = ENCODINGS["zstd"].decode_chunks

    def counted(*arguments: Any) -> Iterator[memoryview]:
        for chunk in real(*arguments):
            lengths.append(chunk.nbytes)
            yield chunk

    monkeypatch.setattr(ENCODINGS["zstd"], "decode_chunks", counted)
    return lengths


def zeros(nbytes: int) -> bytes:
    return b"".join(ENCODINGS["zstd"].encode(memoryview(bytes(nbytes)), level=1))


@pytest.mark.parametrize("count", [2, 300])
@pytest.mark.parametrize("threads", [1, 3])
def test_many_objects_over_one_compressed_blob(
    decoded: list[int], count: int, threads: int
) -> None:
    """A file of 28 kB, hundreds of objects over one blob of zeros: decoded once for each."""
    size = 1 << 20
    data = sharing(count, zeros(size), size // 4)
    with ztensor.open(data) as reader:
        report = reader.verify(threads=threads)
        assert (report.ok, report.unsupported, report.objects) == (True, (), count)
        assert sum(decoded) == size
        assert len(set(ztensor.insight.tensor_hashes(reader, threads=threads).values())) == 1
        assert sum(decoded) == 2 * size
        found = ztensor.stats(reader, bins=0, threads=threads)
        assert [(one.name, one.zeros) for one in found.values()] == [
            (str(number), size // 4) for number in range(count)
        ]
        assert sum(decoded) == 3 * size


def test_damage_of_shared_bytes_is_reported_for_every_object(decoded: list[int]) -> None:
    size = 1 << 20
    data = sharing(40, zeros(size - 4), size // 4)
    with ztensor.open(data) as reader:
        problems = reader.verify().problems
    assert [(p.object_name, p.component) for p in problems] == [
        (str(number), "data") for number in range(40)
    ]
    assert sum(decoded) <= size


def overlapping(count: int, frames: int, *, shapes: bool) -> bytes:
    """Return objects over one blob: each from another frame on, or each of another shape."""
    size = 4 << 20
    frame = zeros(size)
    filling = -(len(frame) + 8) % 64  # objects begin at multiples of 64: a skippable frame
    frame += b"\x50\x2a\x4d\x18" + filling.to_bytes(4, "little") + bytes(filling)
    objects = {}
    for number in range(count):
        left = frames if shapes else frames - number
        start = 64 + (frames - left) * len(frame)
        fields = {"dtype": "bool", "offset": start, "length": len(frame) * left, "encoding": "zstd"}
        if shapes:  # the words of unknown digests make every object another
            fields |= {"uncompressed_length": size * left, "x": number}
            fields["digest"] = f"blake9:{number:02x}"
        objects[str(number)] = size * left, fields
    return over(frame * frames, objects)


@pytest.mark.slow
def test_objects_over_parts_of_one_another(decoded: list[int]) -> None:
    """Each object begins one frame behind the last: decoded bytes grow with the square."""
    data = overlapping(60, 60, shapes=False)
    limits = ztensor.Limits(cost_floor=1 << 20, cost_factor=4)
    most = 60 * (4 << 20) + 4 * (limits.cost_floor + 4 * len(data))
    with ztensor.open(data, limits=limits) as reader:
        report = reader.verify()
        assert report.problems == ()
        assert {p.reason for p in report.unsupported} == {Reason.LIMIT_COST}
        assert 0 < len(report.unsupported) < 60
        assert sum(decoded) < most + 60 * (1 << 20)
        for verb in (ztensor.content_hash, ztensor.stats):
            decoded.clear()
            with refused(LimitError, Reason.LIMIT_COST):
                verb(reader)
            assert sum(decoded) < most + 60 * (1 << 20)
    with ztensor.open(data[:]) as reader:  # of the default limits a part is left
        assert reader.verify(list(reader)[:2]).unsupported == ()


def test_shared_bytes_of_other_words_cost_the_budget(decoded: list[int]) -> None:
    """Objects over one blob that differ in an unknown word: hashed for each."""
    data = overlapping(60, 8, shapes=True)
    limits = ztensor.Limits(cost_floor=1 << 20, cost_factor=4)
    with ztensor.open(data, limits=limits) as reader:
        assert reader.verify().unsupported == ()
        assert sum(decoded) == 8 * (4 << 20)
        decoded.clear()
        with pytest.raises(LimitError) as caught:
            ztensor.content_hash(reader)
        assert sum(decoded) < 16 * (4 << 20)
    assert str(4 * (limits.cost_floor + 4 * len(data))) in str(caught.value.expected)


# --- More dimensions than `Limits.rank` ---------------------------------------------------------


def read(way: Callable[[Any], Any], **how: Any) -> Callable[[Path, ztensor.Limits], None]:
    def use(path: Path, limits: ztensor.Limits) -> None:
        with ztensor.open(path, limits=limits, **how) as reader:
            way(reader)

    return use


READS: dict[str, Callable[[Any], Any]] = {
    "[]": lambda reader: reader["deep"][...],
    "read_numpy": lambda reader: reader.read_numpy("deep"),
    "read_numpy copy": lambda reader: reader.read_numpy("deep", copy=True),
    "read_tensors": lambda reader: reader.read_tensors(["deep"]),
    "read_into": lambda reader: reader.read_into("deep", np.empty((1,) * 5, np.float32)),
    "get_slice": lambda reader: reader.get_slice("deep")[...],
}
WAYS: dict[str, Callable[[Path, ztensor.Limits], object]] = {
    **{name: read(way) for name, way in READS.items()},
    **{f"{name}, not mapped": read(way, mmap=False) for name, way in READS.items()},
    "load_file": lambda path, limits: ztensor.numpy.load_file(path, limits=limits),
    "load_file copy": lambda path, limits: ztensor.numpy.load_file(path, copy=True, limits=limits),
}


@pytest.fixture(params=["few", "columns"])
def deep_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small file, and one that is parsed in bulk."""
    count = 2 if request.param == "few" else 1000
    tensors = {f"plain {i}": np.zeros((1, 2), np.float32) for i in range(count)}
    ztensor.numpy.save_file({**tensors, "deep": np.zeros((1,) * 5, np.float32)}, tmp_path / "a.zt")
    return tmp_path / "a.zt"


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_an_array_forgets_the_rank(deep_file: Path, way: str) -> None:
    """Attack: a cap on dimensions that only some ways to an array asked for."""
    with refused(LimitError, Reason.LIMIT_RANK) as caught:
        WAYS[way](deep_file, ztensor.Limits(rank=4))
    assert caught.value.object_name == "deep"
    WAYS[way](deep_file, ztensor.Limits(rank=5))
