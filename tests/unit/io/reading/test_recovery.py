"""Which state of a torn file is taken, and that nothing stored in it can pose as one."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import random
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.unit.io.reading.counted import Counted
from ztensor import Limits
from ztensor.edit import find, repair
from ztensor.errors import ContainerError, FormatError, Reason
from ztensor.ext import cbor, locking, source_of
from ztensor.io.reading.recovery import search
from ztensor.numpy import save
from ztensor.spec.container.framing import MAGIC_1, MAGIC_2
from ztensor.testing.builder import build, draft, item, sealed
from ztensor.testing.builder_2 import PAGE, File2, dense, footer, one_object

FOUR = np.arange(4, dtype=np.float32)
MIB = 1 << 20


def state_end(data: bytes, **options: Any) -> int | None:
    state, _ = search(source_of(data, mapped=True), **options)
    return None if state is None else state.end


def appended(path: Path, tensors: dict[str, Any], **options: Any) -> bytes:
    with ztensor.Editor(path, **options) as writer:
        for name, array in tensors.items():
            writer.write(name, array)
    return path.read_bytes()


def without_commit(version: str = "1.2.0", *, padding: int = 0, **tensors: Any) -> bytes:
    """Return a file as libraries write it that know no commit record."""
    new = draft(version)
    for name in list(new.objects):
        if tensors:
            del new.objects[name]
    if tensors:
        new.blobs.clear()
    for name, array in tensors.items():
        new.add(name, list(array.shape), {"data": ({"dtype": "f32"}, array.tobytes())})
    data = new.to_bytes()
    size = int.from_bytes(data[-16:-8], "little")
    root: Any = cbor.decode(data[-16 - size : -16])
    del root["commit"]
    return sealed(data[: -16 - size] + bytes(padding), item(root), footer=MAGIC_1)


# --- The last state -------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["written", "appended", "renamed", "removed all", "set twice"])
def test_whatever_the_last_commit_was_it_is_found(history: str, tmp_path: Path) -> None:
    """A commit of names alone has its manifest right behind the footer before it."""
    path = tmp_path / "m.zt"
    path.write_bytes(save({"a": FOUR, "b": FOUR + 1}))
    if history == "appended":
        appended(path, {"c": FOUR})
    elif history == "renamed":
        ztensor.edit.rename_tensors(path, {"a": "c"})
    elif history == "removed all":
        ztensor.edit.remove_tensors(path, names=["a", "b"])
    elif history == "set twice":
        ztensor.edit.set_attributes(path, {"x": 1})
        ztensor.edit.set_attributes(path, {"x": 2})
    data = path.read_bytes()
    with ztensor.open(data) as reader:
        names, attributes = reader.keys(), reader.attributes
    for tail in (b"x", b"torn" * 1000, data[:-3], data[8:-8], MAGIC_1, bytes(8) + MAGIC_1):
        assert state_end(data + tail) == len(data)
        with ztensor.open(data + tail, recover=True) as reader:
            assert (reader.keys(), reader.attributes) == (names, attributes)


def test_a_state_whose_manifest_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(save({"a": FOUR}))
    first = path.stat().st_size
    data = bytearray(appended(path, {"b": FOUR}))
    data[-30] ^= 1
    assert state_end(bytes(data)) == first
    state, candidates = search(source_of(bytes(data), mapped=True))
    assert state is not None
    assert candidates[0].end == len(data)
    assert "digest" in str(candidates[0].fault)
    assert candidates[-1].fault is None


# --- What poses as a state ------------------------------------------------------------------


def nested_file(kind: str, outer: bytes, dice: random.Random) -> bytes:
    """Return a whole file to be stored in a tensor."""
    if kind == "this very file":
        return outer
    if kind == "empty":
        return save({})
    if kind == "from another library":
        return without_commit(x=np.zeros(dice.randrange(1, 40), np.float32))
    if kind == "this one without commit":
        return without_commit()
    if kind == "appended":
        with io.BytesIO() as file, ztensor.Writer(file) as writer:
            writer.write("inner", np.arange(dice.randrange(100)))
            writer.finish()
            return file.getvalue()
    return save({"inner": np.arange(dice.randrange(100)), "a": FOUR})


@pytest.mark.slow
@pytest.mark.parametrize("has_commit", [True, False], ids=["ours", "another library's"])
@pytest.mark.parametrize(
    "kind",
    ["ours", "this very file", "empty", "from another library", "this one without commit",
     "appended"],
)  # fmt: skip
def test_a_whole_file_stored_in_a_torn_append_is_never_taken(
    kind: str, has_commit: bool, tmp_path: Path
) -> None:
    dice = random.Random(f"{kind} {has_commit}")
    path = tmp_path / "m.zt"
    for _ in range(60):
        outer = save({"a": FOUR}) if has_commit else without_commit(a=FOUR)
        path.write_bytes(outer)
        inner = nested_file(kind, outer, dice)
        # At the start of a blob, in its middle, aligned and not, once or several times.
        before = bytes(dice.choice([0, 0, 64, dice.randrange(300)]))
        blob = (before + inner) * dice.choice([1, 1, 3]) + bytes(dice.choice([0, 0, 50]))
        whole = appended(path, {"archive": np.frombuffer(blob, np.uint8)}, durable=False)
        end = len(whole) if dice.random() < 0.1 else dice.randrange(len(outer), len(whole))
        expected = len(whole) if end == len(whole) else len(outer)
        assert state_end(whole[:end]) == expected
        # Cut right behind the stored footer: the file ends with a whole file.
        at = whole.rfind(MAGIC_1, len(outer), len(whole) - 8)
        while at >= 0:
            assert state_end(whole[: at + 8]) == len(outer)
            at = whole.rfind(MAGIC_1, len(outer), at)


def test_the_guard_is_a_copy_and_the_original_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    for old in (save({"a": FOUR}), without_commit(a=FOUR)):
        path.write_bytes(old)
        editor = ztensor.Editor(path)
        editor.write("new", np.zeros(9 * MIB, np.uint8))  # more than a piece: written at once
        editor.abort()
        assert path.stat().st_size > len(old)
        ztensor.open(path).close()  # the guard makes it readable
        report = find(path)
        assert report.end == len(old)
        assert not report.is_clean
        assert report.tail == path.stat().st_size - len(old)
        fault = str(report.candidates[0].fault)
        assert "a copy of the state" in fault or "a copy of a state" in fault


# --- States of other writers ----------------------------------------------------------------


def test_a_padded_state_is_shown_and_taken_on_demand() -> None:
    """It cannot be distinguished from a copy, so the caller has to accept it."""
    padded = without_commit(padding=64)
    torn = padded + b"torn"
    state, candidates = search(source_of(torn, mapped=True))
    assert state is None
    (candidate,) = candidates
    assert candidate.end == len(padded)
    assert candidate.objects == 10
    assert not candidate.is_commit
    assert f"accept={len(padded)}" in str(candidate.fault)
    assert state_end(torn, accept=len(padded)) == len(padded)
    assert state_end(torn, accept=len(padded) - 1) is None


def test_a_state_of_another_library_behind_one_of_ours(tmp_path: Path) -> None:
    """1.2.3 cuts the footer, appends, and drops the record: the rule for its files holds."""
    foreign = without_commit(a=FOUR, b=FOUR)
    assert state_end(foreign + b"torn") == len(foreign)
    path = tmp_path / "m.zt"
    path.write_bytes(foreign)
    ours = appended(path, {"c": FOUR})
    assert state_end(ours + b"torn") == len(ours)
    assert state_end(ours[:-1]) == len(foreign)


@pytest.mark.parametrize("data", [build("0.1.0"), b"", b"ZTEN", b"\x89ZT2\r\n"])
def test_containers_whose_states_cannot_be_found(data: bytes) -> None:
    with refused(ContainerError, Reason.HEADER_MAGIC):
        search(source_of(data, mapped=True))
    with pytest.raises(ztensor.ZTensorError) as plain:
        ztensor.open(data[:-1])
    with refused(ztensor.ZTensorError, plain.value.reason) as recovering:
        ztensor.open(data[:-1], recover=True)
    assert type(recovering.value) is type(plain.value)


# --- Bounds ---------------------------------------------------------------------------------


def nested_footers(size: int) -> bytes:
    """Return a file in which every footer claims all bytes before it."""
    data = bytearray(save({"a": FOUR}))
    while len(data) < size:
        data += (len(data) - 8).to_bytes(8, "little") + MAGIC_1
    return bytes(data)


def overlapping_maps(size: int) -> bytes:
    """Return a file with footers that claim 64 KiB of well-formed CBOR each."""
    data = bytearray(save({"a": FOUR}))
    while len(data) < size:
        data += b"\x81" * 30
        data += min(len(data) - 8, 1 << 16).to_bytes(8, "little") + MAGIC_1
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("make", [nested_footers, overlapping_maps])
def test_footers_nested_by_someone_who_means_harm_stay_linear(make: Any) -> None:
    read = []
    for size in (MIB, 2 * MIB, 4 * MIB):
        source = Counted(make(size))
        state, candidates = search(source)
        assert state is None
        assert len(candidates) <= 1000
        read.append(source.count)
    assert read[-1] <= 8 * 4 * MIB + 16 * MIB
    assert read[-1] <= 5 * read[0] + 16 * MIB


def test_so_many_candidates_are_reported() -> None:
    """Both invalid manifests and possible copies."""
    empty = item({"version": "1.2.0", "attributes": {}, "objects": {}})
    for manifest in (b"\xff", empty):
        unit = manifest + len(manifest).to_bytes(8, "little") + MAGIC_1
        state, candidates = search(source_of(MAGIC_1 + unit * 5000, mapped=True))
        assert state is None
        assert len(candidates) == 1000


def test_what_is_accepted_is_looked_at_however_much_was_before() -> None:
    data = save({"a": FOUR})
    torn = data + (b"\xff" + (1).to_bytes(8, "little") + MAGIC_1) * 5000
    assert state_end(torn) is None
    assert state_end(torn, accept=len(data)) == len(data)


def test_a_manifest_may_be_as_long_as_the_limit() -> None:
    data = save({"a": FOUR})
    length = int.from_bytes(data[-16:-8], "little")
    assert state_end(data, limits=Limits(manifest_bytes=length)) == len(data)
    assert state_end(data, limits=Limits(manifest_bytes=length - 1)) is None


def test_only_so_much_is_searched(tmp_path: Path) -> None:
    data = save({"a": FOUR})
    torn = data + bytes(5000)
    assert state_end(torn, within=5000) is None
    assert state_end(torn, within=5008) == len(data)
    assert state_end(torn, within=10**9) == len(data)
    assert state_end(torn, limits=Limits(manifest_bytes=10)) is None


# --- Hints of ordinary errors ---------------------------------------------------------------


def test_the_error_of_a_torn_file_says_what_was_found_and_what_to_type(tmp_path: Path) -> None:
    path = tmp_path / "it's torn.zt"
    data = save({"a": FOUR, "b": FOUR})
    for torn in (data + b"tail", data + data[8:-1]):
        path.write_bytes(torn)
        with pytest.raises(FormatError) as caught:
            ztensor.open(path)
        text = str(caught.value)
        assert f"2 objects, ends at byte {len(data)}" in text
        assert "ztensor repair" in text
        assert "recover=True" in text
    path.write_bytes(data[:-1])
    with pytest.raises(FormatError, match=r"no committed state was found in its last 64 MiB"):
        ztensor.open(path)


def test_the_error_looks_at_the_last_bytes_only(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(save({"a": FOUR}))
    with open(path, "r+b") as file:
        file.truncate(70 * MIB)
    with pytest.raises(FormatError, match="no committed state was found in its last 64 MiB"):
        ztensor.open(path)
    with ztensor.open(path, recover=True) as reader:
        assert reader["a"].tolist() == FOUR.tolist()


def test_what_was_opened_is_logged_and_nothing_is_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.zt"
    data = save({"a": FOUR})
    path.write_bytes(data + b"tail")
    with caplog.at_level(logging.WARNING, "ztensor"), ztensor.open(path, recover=True) as reader:
        assert reader["a"].tolist() == FOUR.tolist()
        assert reader.verify().ok
    assert f"damaged behind byte {len(data)}" in caplog.text
    assert path.read_bytes() == data + b"tail"
    caplog.clear()
    path.write_bytes(data)
    with ztensor.open(path, recover=True) as reader:
        assert reader.keys() == ["a"]
    assert caplog.text == ""


# --- A commit that is being written ---------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a writer at work."""
    with path.open("r+b") as file:
        locking.acquire(file.fileno(), str(path))
        yield


def test_a_commit_that_ends_while_the_reader_checks_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is free by then and the file complete: the first read is out of date."""
    path = tmp_path / "m.zt"
    data = save({"a": FOUR})
    path.write_bytes(data[:-5])
    call = fcntl.fcntl

    def end_the_commit(*arguments: Any) -> Any:
        path.write_bytes(data)
        return call(*arguments)

    monkeypatch.setattr(fcntl, "fcntl", end_the_commit)
    with ztensor.open(path) as reader:
        assert reader["a"].tolist() == FOUR.tolist()


@pytest.mark.parametrize("recover", [False, True])
def test_a_writer_at_work_is_waited_for(
    recover: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(save({"a": FOUR}))
    new = appended(path, {"b": FOUR})
    path.write_bytes(new[:-5])

    def finish() -> None:
        with locked(path):
            is_locked.set()
            time.sleep(0.05)
            path.write_bytes(new)

    is_locked = threading.Event()
    writer = threading.Thread(target=finish)
    writer.start()
    is_locked.wait()
    with ztensor.open(path, recover=recover) as reader:
        assert reader.keys() == ["a", "b"]
    writer.join()
    assert caplog.text == ""  # nothing was damaged


def test_a_writer_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(save({"a": FOUR}) + b"torn")
    with locked(path):
        with pytest.raises(FormatError, match="ztensor repair"):
            ztensor.open(path)
        with ztensor.open(path, recover=True) as reader:
            assert reader["a"].tolist() == FOUR.tolist()


# --- Files of 2.x: of other writers, as ours leave none -----------------------------------------

CORPUS = Path(__file__).resolve().parents[3] / "corpus2"
FOOTER = 40


def grown(states: int) -> tuple[bytes, list[int]]:
    """Return a file that was appended to as the releases do, and where each state ends."""
    file, objects, ends = File2(), {}, []
    for number in range(states):
        objects[f"w{number}"] = dense(file.part(FOUR + number), [4])
        file.data = bytearray(file.seal({"objects": dict(objects)}))
        ends.append(len(file.data))
    return bytes(file.data), ends


@pytest.mark.wing
@pytest.mark.parametrize("path", sorted((CORPUS / "spec").glob("*.zt")), ids=lambda path: path.name)
def test_every_right_file_of_the_corpus_is_found_behind_which_bytes_were_written(
    path: Path,
) -> None:
    data = path.read_bytes()
    torn = data + b"the beginning of something"
    expected = len(data)
    if path.name == "footer_repeated.zt":
        assert (state_end(torn) or 0) < expected
        assert state_end(torn, accept=expected) == expected
        return
    assert state_end(torn) == expected


@pytest.mark.parametrize(("gap", "is_one"), [(1, True), (PAGE, True), (PAGE + 1, False)])
def test_a_footer_may_begin_a_page_behind_the_manifest(gap: int, is_one: bool) -> None:
    data = one_object()
    padded = data[:-FOOTER] + bytes(gap) + data[-FOOTER:]
    assert state_end(padded) == (len(padded) if is_one else None)
    assert state_end(padded, accept=len(padded)) == len(padded)


def test_a_cut_file_falls_back_to_the_state_before() -> None:
    data, ends = grown(3)
    for length in [*range(8, len(data), 131), *(end + by for end in ends for by in (-1, 0))]:
        whole = [end for end in ends if end <= length]
        assert state_end(data[:length]) == (whole[-1] if whole else None), length


def test_the_copy_of_a_footer_is_one_and_the_original_is_taken() -> None:
    data, (end,) = grown(1)
    copied = data + bytes(9000) + data[-FOOTER:]
    with ztensor.open(copied) as reader:
        assert reader.keys() == ["w0"]
    assert state_end(copied) == state_end(copied + b"torn") == end
    _, candidates = search(source_of(copied, mapped=True))
    assert "a copy of the footer" in str(candidates[0].fault)


@pytest.mark.parametrize("cut", [0, 1, 5000])
def test_whole_files_stored_in_a_torn_append_are_never_taken(cut: int) -> None:
    """Also old states of this very file, with footers that point to its real manifests."""
    data, ends = grown(3)
    other, _ = grown(2)
    for inner in (data, data[: ends[0]], data[: ends[1]], other, one_object()):
        blob = bytes(-len(data) % PAGE) + inner
        assert state_end(data + blob[: len(blob) - cut]) == ends[-1]


def test_the_footer_of_a_data_shard_is_no_state() -> None:
    data, (end,) = grown(1)
    assert state_end(data + bytes(100) + footer(0, 0, 0)) == end
    assert state_end(File2().shard()) is None


def test_random_bytes_that_look_like_a_footer() -> None:
    data, ends = grown(1)
    dice = random.Random(3)
    for _ in range(300):
        tail = bytearray(dice.randbytes(dice.randrange(60, 600)))
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(32, len(tail) - 8 + 1)
            tail[at - 32 : at + 8] = struct.pack(
                "<QQQII", dice.choice([PAGE, 2 * PAGE]), dice.randrange(3000), 1, 2, 0
            ) + MAGIC_2  # fmt: skip
        assert state_end(data + bytes(tail)) == ends[0]


@pytest.mark.parametrize("shift", [*range(-33, -9, 6), *range(-9, 10, 3), *range(15, 34, 6)])
@pytest.mark.parametrize("data", [save({"a": FOUR}), grown(1)[0]], ids=["1.2", "2.1"])
def test_a_footer_across_the_border_of_two_windows_is_found_once(data: bytes, shift: int) -> None:
    state, candidates = search(source_of(data + bytes(8 * MIB + shift), mapped=True))
    assert state is not None
    assert (state.end, len(candidates)) == (len(data), 1)


def test_a_torn_file_is_reported_opened_and_repaired(tmp_path: Path) -> None:
    data, ends = grown(2)
    path = tmp_path / "m.zt"
    path.write_bytes(data + b"the beginning of an append" * 300)
    with pytest.raises(FormatError, match=f"2 objects, ends at byte {ends[-1]}"):
        ztensor.open(path)
    with ztensor.open(path, recover=True) as reader:
        assert reader.keys() == ["w0", "w1"]
        assert reader.verify().ok
        np.testing.assert_array_equal(reader["w1"], FOUR + 1)
    report = find(path)
    assert (report.end, report.objects, report.digests_ok) == (ends[-1], 2, 2)
    assert not report.is_clean
    repair(path, write=tmp_path / "out.zt")
    assert (tmp_path / "out.zt").read_bytes() == data
    report = repair(path, in_place=True)
    assert path.read_bytes() == data
    assert Path(str(report.tail_path)).read_bytes() == b"the beginning of an append" * 300


def test_the_root_of_shards_is_looked_at_without_them(tmp_path: Path) -> None:
    shard = File2()
    there: dict[str, Any] = shard.part(FOUR)
    other = shard.shard()
    root = File2()
    here = root.part(FOUR + 1)
    table = {"a": {"size": len(other), "digest": "xxh3:0123456789abcdef"}}
    objects = {"there": dense({**there, "shard": "a"}, [4]), "here": dense(here, [4])}
    data = root.seal({"objects": objects, "shards": table})
    path = tmp_path / "m.zt"
    path.write_bytes(data + b"torn")
    report = repair(path, in_place=True, drop_tail=True)
    assert (report.end, report.objects, report.digests_ok, report.damaged) == (len(data), 2, 1, ())
    assert path.read_bytes() == data
