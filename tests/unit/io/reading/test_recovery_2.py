"""Which state of a torn file of 2.x is taken: another writer's, as ours leave none."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.io.reading.test_recovery import state_end
from ztensor.edit import find, repair
from ztensor.errors import FormatError
from ztensor.ext import source_of
from ztensor.io.reading.recovery import search
from ztensor.spec.container.framing import MAGIC_2
from ztensor.testing.builder_2 import PAGE, File2, dense, footer, one_object

CORPUS = Path(__file__).resolve().parents[3] / "corpus2"
FOUR = np.arange(4, dtype=np.float32)
FOOTER = 40
MIB = 1 << 20


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


@pytest.mark.parametrize("shift", range(-33, 34, 6))
def test_a_footer_across_the_border_of_two_windows_is_found_once(shift: int) -> None:
    data, (end,) = grown(1)
    state, candidates = search(source_of(data + bytes(8 * MIB + shift), mapped=True))
    assert state is not None
    assert (state.end, len(candidates)) == (end, 1)


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
