from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.unit.cli.conftest import Run
from ztensor.cli import terminal
from ztensor.cli.exits import ExitCode
from ztensor.numpy import save_file
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.wire import cbor
from ztensor.testing.builder_2 import File2, dense

CORPUS = Path(__file__).parents[2] / "corpus"


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


def test_a_good_file(run: Run, model: Path) -> None:
    ended = run("verify", model)
    assert ended.code == 0
    assert ended.err == ""
    assert ended.out.startswith(f"{model}: ok, 9 objects, 13 digests match, 15.")


def test_every_problem_is_listed(run: Run, damaged: Path) -> None:
    ended = run("verify", damaged)
    assert ended.code == 1
    assert "DAMAGED, 2 problems" in ended.lines[0]
    assert len(ended.lines) == 3
    for line, name in zip(ended.lines[1:], ("h.10.w", "h.2.w"), strict=True):
        assert f"'{name}' data: " in line
        assert line.endswith("[digest_mismatch]")


def test_quiet_still_says_what_is_damaged(run: Run, damaged: Path, model: Path) -> None:
    ended = run("verify", "-q", model, damaged)
    assert ended.code == 1
    assert ended.out == ""
    assert "DAMAGED" in ended.err
    assert ended.err.count("digest_mismatch") == 2
    assert str(model) not in ended.err


def test_a_deep_look_is_one_at_whole_shards(run: Run, tmp_path: Path) -> None:
    """The byte lies behind the only blob: no part's digest covers it."""
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
    """Return a file of 2.x whose only object lies in a shard, and the shard."""
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


def test_what_cannot_be_checked_is_said(run: Run, hostile: Path) -> None:
    ended = run("verify", hostile)
    assert ended.code == 0
    assert "not checked in full: 'strange'" in ended.out


def test_no_digests_is_not_ok(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bare.zt"
    save_file({"w": np.zeros(3)}, path, checksum=None)
    ended = run("verify", path)
    assert ended.code == ExitCode.OK
    assert f"{path}: unchecked" in ended.out
    assert "under no digest: 1 object ('w'): it has no digest" in ended.out
    assert run("verify", path, "--require-digests").code == ExitCode.UNCHECKED
    found = run("verify", path, "--json", "--require-digests")
    assert found.code == ExitCode.UNCHECKED
    assert found.json["ok"] is False
    assert found.json["files"][0]["outcome"] == "unchecked"
    assert found.json["files"][0]["unchecked"] == [{"object": "w", "why": "it has no digest"}]


def test_damage_wins_over_what_is_unchecked(run: Run, tmp_path: Path) -> None:
    bare, damaged = tmp_path / "bare.zt", tmp_path / "damaged.zt"
    save_file({"w": np.zeros(3)}, bare, checksum=None)
    save_file({"w": np.zeros(3)}, damaged)
    flip(damaged, 64)
    ended = run("verify", bare, damaged, "--require-digests")
    assert ended.code == ExitCode.FAILED
    assert "0 ok, 1 unchecked, 1 damaged" in ended.out


def test_an_archive_of_torch_is_held_to_its_crc(run: Run, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "m.pt"
    weight = torch.arange(1000.0)
    torch.save({"w": weight, "part": weight[10:20], "b": torch.ones(3)}, path)
    ended = run("verify", path, "--require-digests")
    assert (ended.code, ": ok, 3 objects" in ended.out) == (ExitCode.OK, True)
    flip(path, path.read_bytes().index(weight.numpy().tobytes()) + 2000)
    ended = run("verify", path)
    assert ended.code == ExitCode.FAILED
    assert "CRC-32" in ended.out
    assert run("convert", path, tmp_path / "m.zt").code != ExitCode.OK
    assert not (tmp_path / "m.zt").exists()


def test_a_conversion_says_in_its_json_what_came_without_a_digest(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"w": np.zeros(3)}, path)
    assert run("convert", path, tmp_path / "n.zt", "--json").json["unchecked"] == ["w"]
    assert "digest" not in run("convert", path, tmp_path / "m.zt").out  # it is so of all of them


class Slow:
    """A clock that says every look at it is a second after the last one."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_long_work_shows_a_bar_on_a_terminal(
    run_on_terminal: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hostile.rename(hostile.with_name("[bold]bar.zt"))
    monkeypatch.setattr(terminal, "time", Slow())
    ended = run_on_terminal("verify", path, width=200)
    assert ended.code == 0
    assert "[bold]bar.zt" in ended.err
    assert "B/s" in ended.err
    assert ended.err.endswith("\r")  # and all is taken away again


def test_the_bar_says_how_many_requests_were_made(
    run_on_terminal: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "time", Slow())
    assert "request" not in run_on_terminal("verify", hostile, width=200).err
    made = itertools.count(7)
    monkeypatch.setattr(terminal, "requests_made", lambda: next(made))
    assert re.search(r"\b\d+ requests?\b", run_on_terminal("verify", hostile, width=200).err)


@pytest.mark.parametrize("options", [[], ["-q"], ["--json"]], ids=["plain", "quiet", "json"])
def test_no_bar_without_a_terminal(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(terminal, "time", Slow())
    ended = run("verify", model, *options)
    assert ended.code == 0
    assert ended.err == ""


def test_short_work_shows_no_bar(
    run_on_terminal: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: Any = type("Frozen", (), {"monotonic": staticmethod(lambda: 0.0)})
    monkeypatch.setattr(terminal, "time", frozen)
    assert run_on_terminal("verify", model).err == ""
    assert time.monotonic()
