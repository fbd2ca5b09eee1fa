"""The verbs that change files: results, dry runs, errors."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import sample
from tests.flipping import flip_object
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.cli.spelling import as_json
from ztensor.numpy import save_file

CORPUS = Path(__file__).parents[2] / "corpus"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.zt"
    with ztensor.Writer(path, attributes={"step": 1, "unit": "kg"}) as writer:
        writer.write("a.weight", np.arange(12.0).reshape(3, 4), attributes={"axis": "in"})
        writer.write("a.bias", np.ones(3, np.float32))
        writer.write("big", np.arange(5000))
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other.zt"
    with ztensor.Writer(path, attributes={"step": 2}, compression=True) as writer:
        writer.write("x", np.zeros(1000))
        writer.write("sparse", ztensor.Tensor.csr([1.5], [2], [0, 1], (1, 3)))
    return path


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    path = tmp_path / "new.npy"
    np.save(path, np.zeros(6000, np.int16))
    return path


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    path = tmp_path / "many.npz"
    np.savez_compressed(path, p=np.arange(4), q=np.zeros((0, 3)), r=np.float32(3))
    return path


@pytest.fixture
def torn(file: Path, npy: Path, run: Run) -> Path:
    """A file with an incomplete last commit."""
    assert run("append", file, npy, "-q").code == 0
    os.truncate(file, file.stat().st_size - 9)
    return file


def contents(path: Path) -> dict[str, Any]:
    with ztensor.open(path, verify=True) as reader:
        return {name: reader[name] for name in reader}


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return bytes, inode and time of every file of a folder."""
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            path.stat().st_ino,
            path.stat().st_mtime_ns,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


# --- append ---------------------------------------------------------------------------------


def test_append_adds_arrays_and_objects_as_one_commit(
    run: Run, file: Path, npy: Path, npz: Path, other: Path
) -> None:
    before = contents(file)
    old_bytes = file.read_bytes()
    ended = run("append", file, npz, other)
    assert (ended.code, ended.err) == (0, "")
    assert "5 objects added; 8 objects" in ended.out
    assert file.read_bytes().startswith(old_bytes)  # nothing before the old end was written
    with ztensor.open(file) as reader, ztensor.open(other) as source:
        copied, original = reader.metadata("x"), source.metadata("x")
        assert copied.components["data"].encoding == "zstd"  # as it was stored
        assert copied.components["data"].digest == original.components["data"].digest
        assert reader.read("sparse").format == "sparse_csr"
    size = file.stat().st_size
    how = ("--name", "0/ä", "--compress", "--checksum", "sha256")
    facts = run("append", file, npy, *how, "--json").json
    assert facts["object_count"] == {"before": 8, "after": 9}
    assert facts["nbytes"] == {"before": size, "after": file.stat().st_size}
    (change,) = facts["changes"]
    assert (change["change"], change["name"], change["shape"]) == ("add", "0/ä", [6000])
    with ztensor.open(file) as reader:
        component = reader.metadata("0/ä").components["data"]
    assert (component.encoding, str(component.digest)[:7]) == ("zstd", "sha256:")
    after = contents(file)
    assert set(after) == {*before, "0/ä", "p", "q", "r", "x", "sparse"}
    assert np.array_equal(after["0/ä"], np.load(npy))
    assert (after["q"].shape, after["r"].shape, after["r"]) == ((0, 3), (), 3)
    assert all(np.array_equal(before[name], after[name]) for name in before)


# --- mv, set --------------------------------------------------------------------------------


def test_mv_renames_and_swaps(run: Run, file: Path) -> None:
    before = contents(file)
    assert run("mv", file, "big", "x=y").code == 0
    ended = run("mv", file, "a.bias", "a.weight", "--map", "a.weight=a.bias", "--json")
    assert ended.code == 0
    assert ended.json["changes"] == [
        {"change": "rename", "name": "a.bias", "to": "a.weight"},
        {"change": "rename", "name": "a.weight", "to": "a.bias"},
    ]
    after = contents(file)
    assert np.array_equal(after["x=y"], before["big"])
    assert np.array_equal(after["a.weight"], before["a.bias"])
    assert np.array_equal(after["a.bias"], before["a.weight"])


def test_set_takes_text_and_json(run: Run, file: Path) -> None:
    assert run("set", file, "step=5", "note=a=b", "--remove", "unit").code == 0
    assert ztensor.open(file).attributes == {"step": "5", "note": "a=b"}
    values = ('step={"a": [1, 2.5, true, null]}', 'note="x"', "big=18446744073709551615")
    assert run("set", file, *values, "--json-values").code == 0
    assert ztensor.open(file).attributes == {
        "step": {"a": [1, 2.5, True, None]},
        "note": "x",
        "big": 2**64 - 1,
    }
    of_object = ("axis=2", "--json-values", "--object", "a.weight", "--json")
    assert run("set", file, *of_object).json["changes"] == [
        {"change": "set", "object": "a.weight", "key": "axis", "before": "in", "after": 2}
    ]
    assert ztensor.open(file).metadata("a.weight").attributes == {"axis": 2}
    assert run("set", file, "--object", "a.weight", "--remove", "axis").code == 0
    assert ztensor.open(file).metadata("a.weight").attributes == {}


WRONG: dict[str, list[tuple[str, ...]]] = {
    "append": [
        ("{npz}", "--name", "x"),
        ("{npy}", "{npy}", "--name", "x"),
        ("{npy}", "{taken}"),
    ],
    "replace": [("nothing", "{npy}"), ("big", "{npz}")],
    "rm": [("big", "nothing"), ("big*", "--glob", "nothing*"), ("a.*",)],
    "mv": [
        (),
        ("big",),
        ("big", "a", "b"),
        ("--map", "big"),
        ("--map", "=x"),
        ("nothing", "x"),
        ("big", "a.bias"),
        ("big", "x", "--map", "big=y"),
    ],
    "set": [
        (),
        ("step",),
        ("=1",),
        ("a=1", "a=2"),
        ("step=1", "--remove", "step"),
        ("--remove", "nothing"),
        ("a=1", "--object", "nothing"),
        *((f"a={text}", "--json-values") for text in ("{", "NaN", "null", "36893488147419103232")),
        ("a=" + "[" * 100_000, "--json-values"),
    ],
    "split": [(f"--max-shard-size={size}",) for size in ("0", "-1", "x", "5XB", "1e3", "9" * 400)],
    "repair": [
        ("--drop-tail",),
        ("--in-place", "--write", "out.zt"),
        ("--accept", "x"),
    ],
}


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [(verb, arguments) for verb, calls in WRONG.items() for arguments in calls],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:40],
)
def test_wrong_arguments_change_nothing(
    run: Run, file: Path, npy: Path, npz: Path, verb: str, arguments: tuple[str, ...]
) -> None:
    np.savez(npz.with_name("taken.npz"), fresh=np.zeros(3), big=np.zeros(3))
    places = {"npy": npy, "npz": npz, "taken": npz.with_name("taken.npz")}
    before = snapshot(file.parent)
    words = [
        str(places.get(text.strip("{}"), text)) if text.startswith("{") else text
        for text in arguments
    ]
    ended = run(verb, file, *words)
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith("error: ")
    assert snapshot(file.parent) == before


# --- compact, merge, split ------------------------------------------------------------------


def test_compact_frees_what_nothing_refers_to(run: Run, file: Path) -> None:
    run("rm", file, "big")
    kept = contents(file)
    size = file.stat().st_size
    planned = run("compact", file, "--dry-run", "--json").json
    assert planned["dry_run"]
    assert file.stat().st_size == size
    ended = run("compact", file, "--json")
    assert ended.code == 0
    assert ended.json == {**planned, "dry_run": False}
    assert ended.json["freed_nbytes"] == size - file.stat().st_size > 40_000
    assert all(np.array_equal(kept[name], found) for name, found in contents(file).items())
    assert "0 B freed" in run("compact", file).out


def test_merge_and_its_conflicts(run: Run, file: Path, other: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.zt"
    ended = run("merge", file, other, "-o", out)
    assert ended.code == 0
    assert "5 objects" in ended.out
    assert ztensor.open(out).attributes == {"step": 2, "unit": "kg"}
    save_file({"big": np.zeros(2)}, other)
    assert run("merge", file, other, "-o", out, "--force").code == ExitCode.USAGE
    for winner, shape in (("first", (5000,)), ("last", (2,))):
        ended = run("merge", file, other, "-o", out, "--force", "--on-conflict", winner, "--json")
        assert ended.code == 0
        assert contents(out)["big"].shape == shape
        (conflict,) = ended.json["conflicts"]
        assert conflict["name"] == "big"
        assert ended.json["object_count"] == len(contents(out)) == 3
        assert ended.json["nbytes"] == out.stat().st_size


# --- repair ---------------------------------------------------------------------------------


def test_repair_reports_and_changes_nothing(run: Run, torn: Path, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    error = run("ls", torn)
    assert error.code == ExitCode.CORRUPT
    assert "ztensor repair" in error.err
    ended = run("repair", torn)
    assert ended.code == ExitCode.FAILED
    assert "3 objects" in ended.out
    assert "--write OUT" in ended.out
    explained = run("repair", torn, "--explain")
    assert "the last committed state" in explained.lines[-1]
    assert "a copy of the state" in explained.out
    found = run("repair", torn, "--json").json
    assert found["objects"] == 3
    assert found["end"] + found["tail"] == found["size"] == torn.stat().st_size
    assert not found["opens"]
    assert snapshot(tmp_path) == before


def test_repair_to_a_new_file_and_in_place(run: Run, torn: Path, tmp_path: Path) -> None:
    before = torn.read_bytes()
    out, copy = tmp_path / "mended.zt", tmp_path / "copy.zt"
    shutil.copy(torn, copy)
    out.write_bytes(b"precious")
    for command in (("repair", torn, "--write", out), ("repair", torn, "-o", out, "--dry-run")):
        ended = run(*command)
        assert (ended.code, "--force" in ended.err) == (ExitCode.USAGE, True)
    assert out.read_bytes() == b"precious"
    ended = run("repair", torn, "-o", out, "--force")
    assert ended.code == 0
    assert f"written to {out}" in ended.out
    assert torn.read_bytes() == before
    assert contents(out)["big"].shape == (5000,)
    assert "nothing to repair" in run("repair", out).out
    ended = run("repair", torn, "--in-place", "--json")
    assert ended.code == 0
    tail = Path(ended.json["tail_path"])
    assert torn.read_bytes() + tail.read_bytes() == before
    assert run("verify", torn).code == 0
    assert run("repair", copy, "--in-place", "--drop-tail").code == 0
    assert copy.read_bytes() == torn.read_bytes()
    assert not list(tmp_path.glob("copy.zt.tail-*"))


def test_repair_of_what_holds_no_state(run: Run, file: Path, npy: Path) -> None:
    os.truncate(file, 200)
    for arguments in ((), ("--write", file.with_name("out.zt")), ("--in-place",)):
        ended = run("repair", file, *arguments)
        assert ended.code == ExitCode.CORRUPT
        assert "no committed state was found" in ended.out + ended.err
    assert run("repair", npy).code == ExitCode.USAGE
    assert run("repair", CORPUS / "real" / "0.1.1" / "torch.zt").code == ExitCode.CORRUPT
    assert run("repair", file.with_name("missing.zt")).code == ExitCode.FAILED


def test_repair_of_a_state_that_opens(run: Run, file: Path) -> None:
    """With bytes after it, as a killed writer leaves them, and with a damaged object."""
    copy = file.with_name("copy.zt")
    with ztensor.Editor(file) as editor:
        editor.write("lost", np.zeros(3_000_000))
        shutil.copy(file, copy)
    ended = run("repair", copy)
    assert ended.code == 0
    assert "the file opens as it is" in ended.out
    assert run("compact", copy).code == 0
    assert "nothing to repair" in run("repair", copy).out
    flip_object(copy, "a.bias")
    ended = run("repair", copy)
    assert ended.code == ExitCode.FAILED
    assert "DAMAGED  a.bias" in ended.out
    assert "DAMAGED  a.bias" in run("repair", copy, "-q").err


def test_repair_accepts_an_end_by_hand(run: Run, torn: Path, tmp_path: Path) -> None:
    guard = run("repair", torn, "--json").json["candidates"][0]
    assert guard["fault"]
    out = tmp_path / "out.zt"
    ended = run("repair", torn, "--accept", guard["end"], "--write", out)
    assert ended.code == 0
    assert out.stat().st_size == guard["end"]
    assert len(contents(out)) == 3


# --- All verbs ------------------------------------------------------------------------------

# Calls that change the file; `file` may be replaced by a copy of it.
EDITS: dict[str, tuple[str, ...]] = {
    "append": ("append", "{file}", "{npy}"),
    "append compressed": ("append", "{file}", "{npy}", "--name", "n", "--compress"),
    "append several": ("append", "{file}", "{npy}", "{npz}", "{other}"),
    "replace": ("replace", "{file}", "big", "{npy}"),
    "rm": ("rm", "{file}", "a.*", "--glob"),
    "mv": ("mv", "{file}", "big", "bigger"),
    "set": ("set", "{file}", "step=2", "--remove", "unit"),
    "set of an object": ("set", "{file}", "axis=out", "--object", "a.weight"),
}
CONVERSIONS: dict[str, tuple[str, ...]] = {
    "convert": ("convert", "{file}", "--in-place", "--compression", "zstd"),
}
OTHERS: dict[str, tuple[str, ...]] = {
    "compact": ("compact", "{file}"),
    "merge": ("merge", "{file}", "{other}", "-o", "all.zt"),
    "split": ("split", "{file}", "--max-shard-size", "1kB"),
    "repair": ("repair", "{torn}", "--write", "mended.zt"),
    "repair in place": ("repair", "{torn}", "--in-place"),
    "repair without the tail": ("repair", "{torn}", "--in-place", "--drop-tail"),
}
ATOMIC = {f"{name}, atomic": (*EDITS[name], "--atomic") for name in EDITS}
COMMANDS = EDITS | ATOMIC | CONVERSIONS | OTHERS

Call = Callable[..., list[str]]


@pytest.fixture
def call(
    here: Path, file: Path, other: Path, npy: Path, npz: Path, run: Run,
) -> Call:  # fmt: skip
    """Give the words of a command, for the files of this folder, which is the working one."""
    torn = here / "torn.zt"
    shutil.copy(file, torn)
    run("append", torn, npy, "-q")
    os.truncate(torn, torn.stat().st_size - 9)
    places = {"file": file, "other": other, "npy": npy, "npz": npz, "torn": torn}

    def words(name: str, **instead: Path) -> list[str]:
        return [word.format(**places | instead) for word in COMMANDS[name]]

    return words


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_changes_no_byte_and_foretells_the_result(
    run: Run, call: Call, tmp_path: Path, name: str
) -> None:
    """The same document, and the sizes to the byte."""
    before = snapshot(tmp_path)
    words = call(name)
    code = ExitCode.FAILED if words[0] == "repair" else 0
    planned = run(*words, "--dry-run", "--json")
    text, quiet = (run(*words, "--dry-run", *more) for more in ((), ("-q",)))
    assert planned.code == text.code == quiet.code == code
    assert planned.json["dry_run"] is True
    assert re.search("would|not written", text.out), text.out
    assert quiet.out == quiet.err == ""
    assert snapshot(tmp_path) == before
    assert not list(tmp_path.glob(".*"))
    ended = run(*words, "--json")
    assert ended.code == 0, ended.err
    done = {"dry_run": False, "checked": True} if name == "convert" else {"dry_run": False}
    assert planned.json | done == ended.json
    if "nbytes" in ended.json:
        sizes = ended.json["nbytes"]
        written = words[words.index("-o") + 1] if "-o" in words else words[1]
        expected = sizes["after"] if isinstance(sizes, dict) else sizes
        assert Path(written).stat().st_size == expected
    for path in tmp_path.glob("*.zt"):
        if path.name != "torn.zt":
            assert run("verify", path, "-q").code == 0


@pytest.mark.parametrize("name", EDITS)
def test_atomic_makes_a_new_file_and_in_place_keeps_the_inode(
    run: Run, file: Path, call: Call, name: str
) -> None:
    inode, copy = file.stat().st_ino, file.with_name("copy.zt")
    shutil.copy(file, copy)
    assert run(*call(name)).code == 0
    assert file.stat().st_ino == inode
    inode = copy.stat().st_ino
    assert run(*call(name, file=copy), "--atomic").code == 0
    assert copy.stat().st_ino != inode
    assert contents(copy).keys() == contents(file).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EDITS, *CONVERSIONS, "compact"])
def test_a_file_that_is_being_written(run: Run, call: Call, file: Path, name: str) -> None:
    with ztensor.Editor(file):
        ended = run(*call(name), "--json")
        assert ended.code == ExitCode.FAILED
        assert ended.json["error"]["reason"] == "source_locked"
        assert run(*call(name), "--no-lock", "--dry-run").code == 0


@pytest.mark.parametrize("name", [*EDITS, *CONVERSIONS, "compact", "merge", "split"])
def test_a_damaged_file_is_refused_with_the_way_to_repair_it(
    run: Run, call: Call, tmp_path: Path, name: str
) -> None:
    words = call(name, file=tmp_path / "torn.zt")
    before = snapshot(tmp_path)
    ended = run(*words, "--json")
    assert ended.code == ExitCode.CORRUPT
    assert "ztensor repair" in ended.err
    assert ended.json["error"]["message"] in ended.err
    assert snapshot(tmp_path) == before


def test_much_dead_space_is_pointed_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "large.zt"
    save_file({"w": np.empty(70 << 20, np.uint8), "b": np.ones(3)}, path, checksum=None)
    assert "ztensor compact" in run("rm", path, "w").err
    assert run("set", path, "a=b", "-q").err == ""
    run("compact", path)
    assert run("set", path, "a=c").err == ""


def test_flushes_are_left_out_on_demand(
    run: Run, file: Path, npy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes: list[int] = []
    monkeypatch.setattr(os, "fsync", flushes.append)
    assert run("append", file, npy, "--no-durable").code == 0
    assert run("rm", file, "new", "--no-durable").code == 0
    assert run("compact", file, "--no-durable").code == 0
    assert run("merge", file, "-o", file.with_name("o.zt"), "--no-durable").code == 0
    assert not flushes
    assert run("append", file, npy).code == 0
    assert len(flushes) == 2
    assert run("append", file, npy, "--name", "other", "--dry-run").code == 0
    assert len(flushes) == 2


def test_an_older_container_is_rewritten_and_the_verb_says_so(
    run: Run, tmp_path: Path, npy: Path
) -> None:
    path = tmp_path / "old.zt"
    shutil.copy(CORPUS / "real" / "0.1.1" / "torch.zt", path)
    names = ztensor.open(path).keys()
    ended = run("append", path, npy, "--dry-run")
    assert "would be rewritten as 1.2.0" in ended.err
    assert ztensor.open(path).version == "0.1.0"
    ended = run("append", path, npy, "--json")
    assert ended.code == 0
    assert ended.json["rewritten_from"] == "0.1.0"
    assert ended.err.count("\n") == 1
    with ztensor.open(path) as reader:
        assert reader.version == "1.2.0"
        assert set(reader) == {*names, "new"}
        assert reader.verify().ok


@pytest.mark.slow
def test_hostile_names_are_escaped(
    run: Run, hostile: Path, hostile_names: tuple[str, ...], tmp_path: Path, npy: Path
) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    last = hostile_names[-1]
    arguments: list[tuple[object, ...]] = [
        ("rm", hostile, "*", "--glob"),
        *(("replace", hostile, name, npy) for name in hostile_names),
        *(("mv", hostile, "--", name, f"{name}2") for name in hostile_names),
        *(("set", hostile, "k=v", "--object", name) for name in hostile_names),
        *(("set", hostile, f"k={name}") for name in hostile_names if "\0" not in name),
        ("set", hostile, *(f"--remove={name}" for name in hostile_names)),
        ("split", hostile, "--into", folder),
        ("merge", hostile, hostile, "-o", tmp_path / "all.zt", "--on-conflict", "first"),
        ("merge", hostile, hostile, "-o", tmp_path / "all.zt"),
        ("append", hostile, hostile),
        ("repair", hostile, "--explain"),
        ("rm", hostile, "nothing\x1b[2J", last),
        ("mv", hostile, last, "\x1b\u202e"),
    ]
    for command in arguments:
        dry = () if command[0] == "repair" else ("--dry-run",)
        for more in ((), ("--json",)):
            ended = run(command[0], *dry, *more, *command[1:])
            assert ended.code in (0, 2), ended.err
            assert not CONTROLS.search(ended.out + ended.err), command
            assert ended.out or ended.code == 2
            if more:
                assert ended.json
    ended = run("rm", hostile, "*", "--glob", "--dry-run")
    assert r"\x1b[31mred\x1b[0m" in ended.out
    assert "[red]x[/red]" in ended.out


def test_names_that_look_like_options_follow_two_dashes(run: Run, file: Path) -> None:
    assert run("mv", file, "--", "big", "--dry-run").code == 0
    assert "--dry-run" in contents(file)
    assert run("rm", file, "--", "--dry-run").code == 0
    assert "--dry-run" not in contents(file)


@pytest.mark.slow
def test_the_corpus_is_edited_or_refused(run: Run, npy: Path, tmp_path: Path) -> None:
    """Any file: the change is made and everything else kept, or nothing is touched."""
    files = sorted(CORPUS.rglob("*.zt"))
    for path in sample(files, 4, lambda path: path.parent.name):
        copy = tmp_path / "copy.zt"
        shutil.copy(path, copy)
        before = copy.read_bytes()
        ended = run("append", copy, npy, "--name", "added by the test", "-q")
        assert ended.code in (0, 2, 3, 4), path
        if ended.code:
            assert copy.read_bytes() == before, path
            continue
        with ztensor.open(path) as old, ztensor.open(copy) as new:
            assert set(new) == {*old, "added by the test"}, path
            assert as_json(new.attributes) == as_json(old.attributes), path  # NaN is not NaN
            for name in old:
                assert new.metadata(name).shape == old.metadata(name).shape
            assert len(new.verify().problems) <= len(old.verify().problems), path
