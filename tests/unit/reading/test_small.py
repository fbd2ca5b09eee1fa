"""Small encoded tensors by runs: the values, the errors and the bounds are those of one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.reading.counted import Counted
from ztensor.contents import open_file
from ztensor.encoding import ENCODINGS
from ztensor.encoding.base import EncodingOfSmall, EncodingWithEnd
from ztensor.encoding.zstd.frames import are_small_frames, walk_frames
from ztensor.errors import DigestMismatchError, EncodingError, LimitError, ZTensorError
from ztensor.limits import DEFAULT_LIMITS
from ztensor.model.table import TableObjects
from ztensor.numpy import load, load_file, save, save_file
from ztensor.reading import each, loading, small, verify
from ztensor.reading.file import FileObjects
from ztensor.reading.listing import read_manifest
from ztensor.reading.small import small_jobs
from ztensor.source.base import Range
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from pathlib import Path

    from ztensor.layout.base import Array

COUNT = 2000  # as many as columns are made of
SHARED = {f"w{index}" for index in range(0, COUNT, 6)}


def some() -> dict[str, Array]:
    """Tensors that compress, that do not, that are empty, scalars, and too large to be small."""
    random = np.random.default_rng(0)
    kinds: list[Any] = [
        np.zeros((8, 8), np.float32),
        random.integers(0, 256, 300).astype(np.uint8),
        np.array(2.5),
        np.zeros((0, 3), np.int16),
        np.arange(300).astype(ml_dtypes.bfloat16),
        np.arange(300, dtype=np.complex64),
    ]
    made = {f"w{index}": kinds[index % len(kinds)] for index in range(COUNT)}
    return {**made, "large": np.arange(1 << 16, dtype=np.int64)}


@pytest.fixture(scope="module", params=["1.2.0", "2.1"])
def saved(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    path: Path = tmp_path_factory.mktemp("encoded") / "m.zt"
    save_file(some(), path, version=request.param, compression=True)
    return path


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_of_them_are_loaded(
    saved: Path, copy: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one: list[str] = []
    before = each.read_each

    def noting(file: Any, names: Any, *rest: Any, **more: Any) -> None:
        one_by_one.extend(names)
        before(file, names, *rest, **more)

    monkeypatch.setattr(loading, "read_each", noting)
    monkeypatch.setattr(small, "_LEAST_FOR_THREADS", 0)
    found, expected = load_file(saved, copy=copy, threads=threads), some()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    # The empty ones and the large one take the long way.
    assert set(one_by_one) == {name for name, one in expected.items() if not one.size} | {"large"}


def test_memory_of_ones_own(saved: Path) -> None:
    for separate in (False, True):
        file = open_file(saved)
        objects, result = file.manifest.objects, dict.fromkeys(file.names)
        assert isinstance(objects, TableObjects)
        jobs, _ = small_jobs(file, objects, result, separate=separate)
        for job in jobs:
            job()
        owners = {
            id(array.base.obj if isinstance(array.base, memoryview) else array.base)
            for array in result.values()
            if array is not None
        }
        assert (len(owners) > COUNT // 4) is separate
        file.close()


def test_runs_are_bounded(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "_RUN_STORED", 1000)
    monkeypatch.setattr(small, "_RUN_DECODED", 2000)
    with ztensor.open(saved) as reader:
        file = reader.objects.parts()[0]
        objects: Any = file.manifest.objects
        jobs, _ = small_jobs(file, objects, {}, separate=False)
        for job in jobs:
            run = job.args[2]  # type: ignore[attr-defined]
            assert len(run.names) == 1 or run.nbytes.sum() <= 2000
            # What several have is read once, as what lies far apart is not read.
            places = set(zip(run.offsets.tolist(), run.lengths.tolist(), strict=True))
            assert len(run.names) == 1 or sum(length for _, length in places) <= 1000


@pytest.mark.parametrize("place", ["digest", "frame"])
def test_damage_is_said_as_one_by_one(saved: Path, tmp_path: Path, place: str) -> None:
    data = bytearray(saved.read_bytes())
    with ztensor.open(saved) as reader:
        where = reader.location("w6")
    data[where.offset + where.length - 1] ^= 0xFF
    (tmp_path / "bad.zt").write_bytes(data)
    verify = None if place == "digest" else False
    with ztensor.open(tmp_path / "bad.zt", verify=verify) as reader:
        try:
            reader.read_numpy("w6")
        except ZTensorError as error:
            alone: type[ZTensorError] | None = type(error)
        else:
            alone = None
    if place == "digest":  # of 2.x it is that of what is decoded first
        assert alone in (DigestMismatchError, EncodingError)
    if alone is None:
        return
    with pytest.raises(alone) as caught:
        load_file(tmp_path / "bad.zt", verify=verify)
    assert caught.value.object_name in SHARED  # they have the same bytes


def half_random(nbytes: int, seed: int) -> Array:
    """Return what zstd makes half as long: bytes it keeps as they are, and zeros."""
    made = np.zeros(nbytes, np.uint8)
    made[: nbytes // 2] = np.random.default_rng(seed).integers(0, 256, nbytes // 2, np.uint8)
    return made


@pytest.mark.parametrize("version", ["1.1", "1.2.0"])
def test_a_byte_that_decodes_to_another_is_found_when_loading(version: str) -> None:
    """The frames have no sum of their own."""
    tensors = {f"w{index:02}": half_random(600, index) for index in range(20)}
    data = bytearray(save(tensors, version=version, compression=True))
    data[data.index(tensors["w07"][50:250].tobytes()) + 50] ^= 1
    with pytest.raises(DigestMismatchError) as caught:
        load(bytes(data))
    assert (caught.value.object_name, caught.value.component) == ("w07", "data")
    found = load(bytes(data), verify=False)
    assert np.flatnonzero(found["w07"] != tensors["w07"]).tolist() == [100]


@pytest.mark.parametrize("nbytes", [60_032, 200_000], ids=["in runs", "one by one"])
def test_neighbours_share_one_slab_to_its_last_byte(nbytes: int) -> None:
    """They are of more than one run; the last of them ends where the slab does."""
    tensors = {f"w{index:02}": half_random(nbytes, index) for index in range(30)}
    found = load(save(tensors, version="2.1", compression=True))
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    assert len({id(array.base) for array in found.values()}) == 1


def test_caps_are_those_of_one_by_one(saved: Path) -> None:
    limits = ztensor.Limits(decoded_bytes=100)
    with ztensor.open(saved, limits=limits) as reader, pytest.raises(LimitError):
        loading.load_all(reader.objects.parts()[0], copy=True)


# --- Checked --------------------------------------------------------------------------------


def reports(path: Path, monkeypatch: pytest.MonkeyPatch, names: Any = None) -> tuple[Any, Any, int]:
    """Return what verify says by runs and one by one, and how many it took by runs."""
    taken = 0
    before = small.checked_small

    def counting(*rest: Any) -> set[str]:
        nonlocal taken
        found = before(*rest)
        taken = len(found)
        return found

    done: list[tuple[int, int]] = []
    with ztensor.open(path) as reader:
        monkeypatch.setattr(verify, "checked_small", counting)
        ours = reader.verify(names, progress=lambda *at: done.append(at))
        monkeypatch.setattr(verify, "checked_small", lambda *_: set())
        alone = reader.verify(names)
        monkeypatch.setattr(verify, "checked_small", before)
    assert done[-1] == (alone.nbytes, alone.nbytes)
    assert [one[0] for one in done] == sorted(one[0] for one in done)
    return ours, alone, taken


@pytest.mark.slow
@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize(
    ("version", "checksum"),
    [
        *((version, one) for version in ("1.1.0", "1.2.0") for one in ("crc32c", "sha256", None)),
        *(("2.1", one) for one in ("xxh3", "sha256")),
    ],
)
def test_reports_are_those_of_one_by_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: bool,
    version: str,
    checksum: str | None,
) -> None:
    tensors = {**some(), "flags": np.array([True, False])}
    tensors |= {f"own{index}": np.full(9, index, np.int32) for index in range(500)}
    path = tmp_path / "m.zt"
    save_file(tensors, path, compression=compression, version=version, checksum=checksum)
    ours, alone, taken = reports(path, monkeypatch)
    assert ours == alone
    assert (taken >= 500) is (checksum in ("crc32c", "xxh3"))
    some_names = ["own3", "w1", "flags", "large"]
    ours, alone, taken = reports(path, monkeypatch, some_names)
    assert ours == alone
    assert ours.objects == 4


@pytest.mark.slow
@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_damage_anywhere_is_reported_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: bool, version: str
) -> None:
    path = tmp_path / "m.zt"
    count = COUNT if version == "1.2.0" else 50  # of 2.x any number
    tensors = {f"own{index}": np.full((3, 5), index, np.float32) for index in range(count)}
    tensors["flags"] = np.array([True, False])
    save_file(tensors, path, compression=compression, version=version)
    data = path.read_bytes()
    with ztensor.open(path) as reader:
        places = [reader.location(name) for name in ("own0", "own7", "flags", f"own{count - 1}")]
    for place in places:
        for at in (place.offset, place.offset + place.length - 1):
            bad = bytearray(data)
            bad[at] ^= 4
            path.write_bytes(bad)
            ours, alone, _ = reports(path, monkeypatch)
            assert ours == alone
            assert not ours.ok


@pytest.mark.parametrize("compression", [False, True])
def test_of_objects_nobody_asks_for_no_byte_is_read(compression: bool) -> None:
    tensors = {f"w{index:02}": half_random(60_000, index) for index in range(30)}
    source = Counted(save(tensors, version="2.1", compression=compression))
    _, manifest = read_manifest(source, DEFAULT_LIMITS)
    assert isinstance(manifest.objects, TableObjects)
    file = FileObjects(source, manifest)
    source.count = 0
    report = verify.verify_file(file, list(tensors)[::3])
    assert (report.ok, report.checked) == (True, 10)
    assert source.count == report.nbytes < sum(map(len, tensors.values())) / 2


# --- The frame ------------------------------------------------------------------------------


def frame_of(data: bytes) -> bytes:
    return b"".join(ENCODINGS["zstd"].encode(memoryview(data), level=3))


def stored_by(encoding: str, data: bytes) -> bytes:
    """Return what an encoding makes of bytes, the table behind them included."""
    of = ENCODINGS[encoding]
    frames = [bytes(piece) for piece in of.encode(memoryview(data), level=3)]
    if not isinstance(of, EncodingWithEnd):
        return b"".join(frames)
    assert len(frames) == 1
    return frames[0] + of.end([(len(frames[0]), len(data))])


def decoded(pieces: list[bytes], targets: list[Any], encoding: str = "zstd") -> list[bool]:
    """Return which pieces, between other bytes, are decoded at once."""
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    starts = np.cumsum(lengths + 3) - lengths
    memory = memoryview(b"".join(b"abc" + piece for piece in pieces) + b"d")
    into = [memoryview(target) for target in targets]
    of = ENCODINGS[encoding]
    assert isinstance(of, EncodingOfSmall)
    right: list[bool] = of.decode_small(memory, starts, lengths, into, DEFAULT_LIMITS).tolist()
    return right


def walked(stored: bytes, length: int, encoding: str) -> bytes | None:
    """Return what the general way decodes to so many bytes, None where it refuses."""
    into = bytearray(length)
    source = Range(MemorySource(stored), 0, len(stored))
    try:
        ENCODINGS[encoding].decode_into(source, memoryview(into), DEFAULT_LIMITS)
    except EncodingError:
        return None
    return bytes(into)


SAMPLES = [
    bytes(range(256)) * 2,
    b"a" * 300,
    b"ab",
    bytes(np.random.default_rng(1).integers(0, 256, 200).astype(np.uint8)),
    b"x" * 70_000,
    bytes(40_000) + b"end",
]


@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_our_writers_make_is_small(data: bytes) -> None:
    stored = frame_of(data)
    frames = list(walk_frames(Range(MemorySource(stored), 0, len(stored)), DEFAULT_LIMITS))
    at, length, size = np.array([[0], [len(stored)], [len(data)]])
    is_small = are_small_frames(memoryview(stored), at, length, size, 8 << 20)
    assert is_small.tolist() == [len(frames) == 1]
    into = bytearray(len(data))
    assert decoded([stored], [into]) == [len(frames) == 1]
    assert len(frames) > 1 or bytes(into) == data


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "least"), [("zstd", 100), ("zt.zstd-seekable/1", 10)])
def test_whatever_it_takes_the_general_way_takes(encoding: str, least: int) -> None:
    random = np.random.default_rng(2)
    taken = 0
    for data in SAMPLES[:4]:
        stored = stored_by(encoding, data)
        tried, targets = [], []
        for _ in range(3000):
            bad = bytearray(stored)
            for at in random.integers(0, min(len(bad), 16), random.integers(1, 3)):
                # At either end: of a frame the headers, and the table behind it.
                bad[at if random.random() < 0.7 else -1 - at] = random.integers(0, 256)
            if random.random() < 0.2:
                bad = bad[: random.integers(0, len(bad))]
            tried.append(bytes(bad))
            length = len(data) if random.random() < 0.7 else int(random.integers(1, 600))
            targets.append(bytearray(length))
        right = decoded(tried, targets, encoding)
        taken += sum(right)
        for piece, into, is_right in zip(tried, targets, right, strict=True):
            assert not is_right or walked(piece, len(into), encoding) == bytes(into)
    assert taken > least


def test_nothing_is_decoded_of_nothing() -> None:
    for encoding in ("zstd", "zt.zstd-seekable/1"):
        assert decoded([], [], encoding) == []
        assert decoded([b"", frame_of(b"ab"), b""], [bytearray(9)] * 3, encoding) == [False] * 3
