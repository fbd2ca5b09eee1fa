from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.wire import cbor
from ztensor.testing.builder_2 import File2, dense


@pytest.fixture
def damaged(model: Path) -> Path:
    """A copy of the model with a bit flipped in each of two objects."""
    data = bytearray(model.read_bytes())
    with ztensor.open(model) as reader:
        for name in ("h.2.w", "h.10.w"):
            data[reader.location(name).offset + 5] ^= 1
    path = model.with_name("damaged.zt")
    path.write_bytes(data)
    return path


def test_every_problem_is_listed(run: Run, damaged: Path) -> None:
    ended = run("verify", damaged)
    assert ended.code == 1
    assert "DAMAGED, 2 problems" in ended.lines[0]
    assert len(ended.lines) == 3
    for line, name in zip(ended.lines[1:], ("h.10.w", "h.2.w"), strict=True):
        assert f"'{name}' data: " in line
        assert line.endswith("[digest_mismatch]")


def test_a_deep_look_is_one_at_whole_shards(run: Run, tmp_path: Path) -> None:
    """The byte is after the only blob, so no component's digest covers it."""
    root, shard = with_shard()
    shard = shard[:-100] + b"x" + shard[-99:]
    (tmp_path / "m.zt").write_bytes(root)
    (tmp_path / "m-a.zt").write_bytes(shard)
    assert run("verify", tmp_path / "m.zt").code == 0
    ended = run("verify", "--deep", tmp_path / "m.zt")
    assert ended.code == 1
    assert "DAMAGED, 1 problem" in ended.lines[0]
    assert ended.lines[1].lstrip().startswith("shard 'a': the stored bytes do not match")
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("m.zt", "m-a.zt"):
        (folder / name).write_bytes((tmp_path / name).read_bytes())
    index = {"weight_map": {"there": "m.zt"}}
    (folder / "m.zt.index.json").write_text(json.dumps(index))
    assert run("verify", folder / "m.zt.index.json").code == 0
    ended = run("verify", "--deep", folder / "m.zt.index.json")
    assert ended.code == 1
    assert ended.lines[1].lstrip().startswith("m.zt, shard 'a': the stored bytes")


def with_shard() -> tuple[bytes, bytes]:
    """Return a file of 2.x with one object in a shard, and the shard."""
    other = File2()
    part = other.part(np.arange(5.0))
    shard = other.shard()
    entry = {"size": len(shard), "digest": ALGORITHMS["sha256"].of([shard])}
    objects = {"there": dense(part | {"shard": "a"}, [5])}
    return File2().seal({"objects": objects, "shards": {"a": entry}}), shard


def test_several_files_are_summed_up(run: Run, damaged: Path, model: Path) -> None:
    ended = run("verify", model, damaged, model.with_name("missing.zt"))
    assert ended.code == 1
    assert ended.lines[-1] == "3 files: 1 ok, 1 damaged, 1 could not be read"
    quiet = run("verify", "-q", model, damaged)
    assert (quiet.code, quiet.out) == (1, "")
    assert "DAMAGED" in quiet.err
    assert quiet.err.count("digest_mismatch") == 2
    assert str(model) not in quiet.err
    assert run("verify", model, model).lines[-1] == "2 files: 2 ok, 0 damaged"


def test_json(run: Run, damaged: Path, model: Path) -> None:
    found = run("verify", "--json", model, damaged).json
    assert found["ok"] is False
    good, bad = found["files"]
    assert (good["ok"], good["objects"], good["checked"], good["undigested"]) == (True, 9, 13, 0)
    assert (good["problems"], good["unsupported"]) == ([], [])
    assert bad["ok"] is False
    assert bad["checked"] == 11
    first = bad["problems"][0]
    assert (first["reason"], first["object"], first["component"]) == (
        "digest_mismatch",
        "h.10.w",
        "data",
    )
    assert first["path"] == ["objects", "h.10.w", "components", "data"]


def test_all_problems_of_a_manifest_are_listed(run: Run, tmp_path: Path) -> None:
    bad = {
        "shape": [4],
        "format": "dense",
        "components": {"data": {"dtype": "f32", "offset": 64, "length": 8}},
    }
    manifest = cbor.encode({"version": "1.2.0", "objects": {"a": bad, "b": bad}})
    path = tmp_path / "two.zt"
    size = len(manifest).to_bytes(8, "little")
    path.write_bytes(b"ZTEN1000" + bytes(64) + manifest + size + b"ZTEN1000")
    ended = run("verify", path)
    assert ended.code == 4
    details = ended.err.splitlines()[1:]
    assert len(details) == 2
    assert "'a'" in details[0]
    assert "'b'" in details[1]
    (found,) = run("verify", path, "--json").json["files"]
    assert [problem["object"] for problem in found["error"]["problems"]] == ["a", "b"]


def test_no_digests_is_not_ok(run: Run, hostile: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.zt"
    save_file({"w": np.zeros(3)}, path, checksum=None)
    ended = run("verify", path)
    assert ended.code == ExitCode.OK
    assert f"{path}: unchecked" in ended.out
    assert "not verified: 1 object ('w'): it has no digest" in ended.out
    assert run("verify", path, "--require-digests").code == ExitCode.UNCHECKED
    found = run("verify", path, "--json", "--require-digests")
    assert found.code == ExitCode.UNCHECKED
    assert found.json["ok"] is False
    assert found.json["files"][0]["outcome"] == "unchecked"
    assert found.json["files"][0]["unchecked"] == [{"object": "w", "why": "it has no digest"}]
    damaged = tmp_path / "damaged.zt"
    save_file({"w": np.zeros(3)}, damaged)
    flip(damaged, 64)
    ended = run("verify", path, damaged, hostile, "--require-digests")
    assert ended.code == ExitCode.FAILED
    assert "1 ok, 1 unchecked, 1 damaged" in ended.out
    assert "not checked in full: 'strange'" in ended.out


@pytest.mark.slow  # a bar is shown after 0.3 seconds
def test_long_work_shows_a_bar_on_a_terminal(
    run: Run, run_on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "[bold]bar.zt"
    save_file({f"{n}": np.zeros(1 << 20) for n in range(4)}, path, checksum="sha256")
    clock = itertools.count(0.0)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))  # each look is a second later
    ended = run_on_terminal("verify", path, width=200)
    assert "[bold]bar.zt" in ended.err
    assert "B/s" in ended.err
    assert ended.err.endswith("\r")  # and is removed at the end
    for options in ((), ("-q",), ("--json",)):
        assert run("verify", path, *options).err == ""
    monkeypatch.undo()
    save_file({"w": np.zeros(3)}, path)
    assert run_on_terminal("verify", path).err == ""  # so short that it would flicker
