"""`convert`: files as files of other formats, versions and encodings."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from ztensor.cli.exits import ExitCode
from ztensor.io.source.base import Range
from ztensor.io.source.memory import MemorySource
from ztensor.limits import DEFAULT_LIMITS
from ztensor.numpy import save_file
from ztensor.spec.encoding.zstd.frames import walk_frames

WEIGHT = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.npz"
    np.savez(path, w=WEIGHT, b=WEIGHT[0], step=np.array(7))
    return path


def test_convert_says_what_it_did(run: Run, plain: Path, tmp_path: Path) -> None:
    ended = run("convert", plain, tmp_path / "m.zt")
    assert ended.code == 0
    assert ended.lines == [
        f"{tmp_path / 'm.zt'}: written, zt 1.2.0, of 3 objects, "
        f"{plain.stat().st_size / 1000:.1f} kB -> "
        f"{(tmp_path / 'm.zt').stat().st_size / 1000:.1f} kB; nothing is lost"
    ]
    assert ended.err == ""
    assert ztensor.content_hash(plain) == ztensor.content_hash(tmp_path / "m.zt")


def test_convert_as_json(run: Run, plain: Path, tmp_path: Path) -> None:
    new = tmp_path / "m.zt"
    assert run("convert", plain, new, "--check", "--json").json == {
        "file": str(plain),
        "output": str(new),
        "files": [str(new)],
        "dry_run": False,
        "format": "zt",
        "version": "1.2.0",
        "object_count": 3,
        "nbytes": {"before": plain.stat().st_size, "after": new.stat().st_size},
        "lossless": True,
        "lost": [],
        "unrepresented": [],
        "checked": True,
        "unchecked": [],
        "changed": [],
        "deleted": [],
    }


def test_options_reach_the_file(run: Run, plain: Path, tmp_path: Path) -> None:
    new = tmp_path / "m.bin"
    options = ("--to", "zt", "--version", "1.1.0", "--compression", "9", "--checksum", "sha256")
    assert run("convert", plain, new, *options, "--include", "?", "--exclude", "b").code == 0
    with ztensor.open(new) as reader:
        assert (list(reader), reader.version) == (["w"], "1.1.0")
        component = reader.metadata("w").components["data"]
        assert component.encoding == "zstd"
        assert (component.digest or "").startswith("sha256:")


@pytest.mark.parametrize(
    ("text", "encoding"), [("keep", "zstd"), ("raw", "raw"), ("0", "raw"), ("zstd", "zstd")]
)
def test_compression(run: Run, tmp_path: Path, text: str, encoding: str) -> None:
    save_file({"w": WEIGHT}, tmp_path / "old.zt", compression=True)
    ended = run("convert", tmp_path / "old.zt", tmp_path / "new.zt", "--compression", text)
    assert ended.code == 0
    with ztensor.open(tmp_path / "new.zt") as reader:
        assert reader.metadata("w").components["data"].encoding == encoding


def frames(path: Path) -> list[int]:
    with ztensor.open(path) as reader:
        place = reader.location("w")
    stored = Range(MemorySource(path.read_bytes()), place.offset, place.length)
    return [frame.content_length or 0 for frame in walk_frames(stored, DEFAULT_LIMITS)]


def test_chunk_rows_reach_the_file(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old.zt", tmp_path / "new.zt"
    save_file({"w": np.zeros((1000, 3), np.int8)}, old)
    how = ("--chunk-rows", "400")
    assert run("convert", old, new, "--compression", "zstd", *how).code == 0
    assert frames(new) == [1200, 1200, 600]
    assert run("convert", old, "--in-place", "--compression", "zstd", *how).code == 0
    assert frames(old) == [1200, 1200, 600]
    for wrong in (("--chunk-rows", "0", "--compression", "3"), how):
        ended = run("convert", old, tmp_path / "no.zt", *wrong)
        assert ended.code == ExitCode.USAGE
        assert "chunk" in ended.err
    assert not (tmp_path / "no.zt").exists()


def test_values_are_changed_where_that_is_asked_for(run: Run, model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.zt"
    ended = run("convert", model, new, "--dequantize", "--dtype", "float16")
    assert ended.code == 0
    assert "values changed as asked" in ended.out
    assert "5 objects made float16" in ended.out
    facts = run("convert", model, new, "--dequantize", "--json", "--force", "--check").json
    (changed,) = facts["changed"]
    assert changed == {
        "object": "int4",
        "from": "quantized_group",
        "to": "float32",
        "largest_error": 0.0,
    }
    assert facts["lossless"] is False
    assert facts["lost"] == []
    with ztensor.open(new) as reader, ztensor.open(model) as old:
        assert np.array_equal(reader["int4"], old.read("int4").dequantize())
    same = run("convert", model, new, "--dtype", "float32", "--include", "h.2.w", "--force")
    assert "nothing is lost" in same.out


def test_values_are_not_changed_in_the_input(run: Run, model: Path, tmp_path: Path) -> None:
    for how in (["--dequantize"], ["--dtype", "float32"], ["--quantize", "int4"]):
        ended = run("convert", model, tmp_path / "new.zt", *how, "--delete-input")
        assert ended.code == ExitCode.USAGE
        assert "cannot be combined with --dtype, --quantize or --dequantize" in ended.err
    ended = run("convert", model, tmp_path / "new.zt", "--dtype", "int8")
    assert ended.code == ExitCode.USAGE
    assert "bfloat16" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["model.zt"]


def test_a_number_that_is_too_large_is_told(run: Run, tmp_path: Path) -> None:
    save_file({"large": np.array([1e6])}, tmp_path / "a.zt")
    ended = run("convert", tmp_path / "a.zt", tmp_path / "b.zt", "--dtype", "float16")
    assert ended.code != 0
    assert "large" in ended.err
    assert "infinite" in ended.err
    assert not (tmp_path / "b.zt").exists()


def test_what_is_lost_is_listed(run: Run, model: Path) -> None:
    new = model.with_suffix(".safetensors")
    ended = run("convert", model, new)
    assert ended.code == 0
    assert ended.lines[0].split() == ["lost", "of", "what"]
    assert {"sparse", "int4"} <= {line.split()[0] for line in ended.lines}
    assert "are lost" in ended.lines[-1]
    facts = run("convert", model, new, "--force", "--json").json
    assert facts["lossless"] is False
    assert {loss["object"] for loss in facts["lost"]} >= {"sparse", "int4"}
    assert facts["version"] is None


def test_strict_writes_nothing(run: Run, model: Path) -> None:
    ended = run("convert", model, model.with_suffix(".npz"), "--strict")
    assert ended.code == ExitCode.USAGE
    assert "cannot represent everything" in ended.err
    assert not model.with_suffix(".npz").exists()


def test_a_file_that_exists_is_kept(run: Run, plain: Path, tmp_path: Path) -> None:
    new = tmp_path / "m.zt"
    new.write_bytes(b"old")
    ended = run("convert", plain, new)
    assert ended.code == ExitCode.USAGE
    assert "--force" in ended.err
    assert new.read_bytes() == b"old"
    assert run("convert", plain, new, "--force").code == 0
    assert new.read_bytes() != b"old"


@pytest.mark.parametrize("name", ["m.zt", "m.safetensors"])
def test_a_dry_run_changes_nothing(run: Run, plain: Path, tmp_path: Path, name: str) -> None:
    ended = run("convert", plain, tmp_path / name, "--dry-run", "--delete-input")
    assert ended.code == 0
    assert "not written; it would be" in ended.out
    assert list(tmp_path.iterdir()) == [plain]


def test_quiet_prints_nothing(run: Run, plain: Path, tmp_path: Path) -> None:
    ended = run("convert", plain, tmp_path / "m.zt", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_standard_input(
    run: Run, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(plain.read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    assert run("convert", "-", tmp_path / "m.zt").code == 0
    assert ztensor.content_hash(plain) == ztensor.content_hash(tmp_path / "m.zt")


# --- Deleting the input ---------------------------------------------------------------------


def test_the_input_goes_when_the_output_is_proven(run: Run, plain: Path, tmp_path: Path) -> None:
    before = ztensor.content_hash(plain)
    ended = run("convert", plain, tmp_path / "m.zt", "--delete-input")
    assert ended.code == 0
    assert "read back and compared" in ended.lines[0]
    assert ended.lines[1] == f"{plain}: deleted"
    assert not plain.exists()
    assert ztensor.content_hash(tmp_path / "m.zt") == before


def test_all_files_of_a_set_go(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    save_file({"a": WEIGHT, "b": WEIGHT + 1}, folder / "m.zt", max_shard_size=1024)
    ended = run("convert", folder, tmp_path / "m.zt", "--delete-input")
    assert ended.code == 0
    assert len(run("ls", tmp_path / "m.zt", "--json").json["files"][0]["objects"]) == 2
    assert list(folder.iterdir()) == []


def test_losses_of_one_kind_are_one_line_and_all_of_them_are_listed_on_request(
    run: Run, tmp_path: Path
) -> None:
    attributes = {f"key {number}": number for number in range(50)}
    ztensor.numpy.save_file({"a": np.ones(2), "b": np.ones(2)}, tmp_path / "m.zt", attributes)
    words = ["convert", tmp_path / "m.zt", "--version", "0.1.0", tmp_path / "old.zt"]
    told = run(*words).lines
    assert len(told) == 3
    assert "; and 49 more of the kind" in told[1]
    listed = run(*words, "--losses", "--force")
    assert all(f"'key {number}'" in listed.out for number in range(50))
    facts = run(*words, "--force", "--json").json["lost"]
    assert len(facts) == 50
    assert len({loss["kind"] for loss in facts}) == 1


def test_the_input_stays_where_something_would_be_lost(run: Run, model: Path) -> None:
    ended = run("convert", model, model.with_suffix(".safetensors"), "--delete-input")
    assert ended.code == ExitCode.USAGE
    assert list(model.parent.iterdir()) == [model]


OF_NEW_FILES = [
    ("--to", "npz"), ("--dtype", "float16"), ("--dequantize",), ("--include", "w"),
    ("--max-shard-size", "1MB"), ("--delete-input",), ("--jobs", "2"), ("--pickled",),
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "{in}", "{dir}/m.zt", "--delete-input", "--include", "w"),
        ("convert", "-", "{dir}/m.zt", "--delete-input"),
        ("convert", "{in}", "{dir}/m.foo"),
        ("convert", "{in}", "{in}", "--force", "--to", "zt"),
        ("convert", "{in}", "{dir}/m.zt", "--compression", "lots"),
        ("convert", "{in}", "{dir}/m.zt", "--version", "3"),
        ("convert", "{in}", "{dir}/m.zt", "--include", "zzz"),
        ("convert", "{in}"),
        ("convert", "{in}", "{dir}/m.zip", "--to", "zip"),
        ("convert", "{in}", "{dir}/m.zt", "--in-place"),
        ("convert", "{in}", "-o", "{dir}/m.zt", "--in-place"),
        ("convert", "{in}", "--in-place", "--version", "7"),
        ("convert", "{in}", "--in-place", "--compression", "40"),
        ("convert", "{in}", "--in-place", "--checksum", "md5"),
        *(("convert", "{in}", "--in-place", *words) for words in OF_NEW_FILES),
    ],
    ids=" ".join,
)
def test_what_is_wrong_to_ask(
    run: Run, plain: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    before = plain.read_bytes()
    asked = [text.replace("{in}", str(plain)).replace("{dir}", str(tmp_path)) for text in arguments]
    ended = run(*asked)
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == [plain]
    assert plain.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "code"), [(None, ExitCode.FAILED), (b"no tensors in here", ExitCode.CORRUPT)]
)
def test_what_cannot_be_read(run: Run, tmp_path: Path, content: bytes | None, code: int) -> None:
    if content is not None:
        (tmp_path / "m.bin").write_bytes(content)
    assert run("convert", tmp_path / "m.bin", tmp_path / "m.zt").code == code
    assert not (tmp_path / "m.zt").exists()


def test_strangers_names_do_not_reach_the_terminal(run: Run, hostile: Path) -> None:
    ended = run("convert", hostile, hostile.with_suffix(".safetensors"))
    assert "\x1b" not in ended.out + ended.err
    assert "\x9b" not in ended.out + ended.err


# --- In its place ---------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.zt"
    save_file({"w": np.zeros((100, 100), np.float32)}, path, version="0.1.0")
    return path


def test_a_file_gets_another_version_in_its_place_and_its_own_back(run: Run, old: Path) -> None:
    before = ztensor.content_hash(old)
    ended = run("convert", old, "--in-place", "--version", "1.2.0")
    assert ended.code == 0
    assert ended.lines[0].startswith(f"{old}: written, zt 1.2.0, of 1 object, ")
    assert ended.lines[0].endswith("; nothing is lost, read back and compared")
    facts = run("convert", old, "--in-place", "--version", "0.1.0", "--json").json
    assert (facts["version"], facts["checked"], facts["lossless"]) == ("0.1.0", True, True)
    assert run("convert", old, "--in-place", "--json").json["version"] == "0.1.0"  # it is kept
    assert ztensor.content_hash(old) == before


def test_what_another_version_cannot_say_changes_nothing(run: Run, model: Path) -> None:
    before = model.read_bytes()
    ended = run("convert", model, "--in-place", "--version", "0.1.0")
    assert ended.code == ExitCode.USAGE
    assert "cannot represent everything" in ended.err
    assert model.read_bytes() == before


def test_data_is_compressed_in_its_place_and_raw_again(run: Run, model: Path) -> None:
    before = ztensor.content_hash(model, attributes=True)
    for how, expected in (("19", {"raw", "zstd"}), ("raw", {"raw"})):
        size = model.stat().st_size
        facts = run("convert", model, "--in-place", "--compression", how, "--json").json
        assert facts["nbytes"] == {"before": size, "after": model.stat().st_size}
        listed = run("ls", model, "--json").json["files"][0]["objects"]
        assert {word for one in listed for word in one["encoding"].split(",")} == expected
        assert ztensor.content_hash(model, attributes=True) == before


def test_a_dry_run_in_its_place_changes_nothing(run: Run, old: Path) -> None:
    before = old.read_bytes()
    ended = run("convert", old, "--in-place", "--version", "1.2.0", "--dry-run")
    assert (ended.code, "not written" in ended.out) == (0, True)
    assert old.read_bytes() == before


def test_another_writer_has_the_file(run: Run, model: Path) -> None:
    with ztensor.Editor(model):
        assert run("convert", model, "--in-place").code == ExitCode.FAILED
        assert run("convert", model, "--in-place", "--no-lock").code == 0


def test_a_damaged_file_stays_as_it_is(run: Run, model: Path) -> None:
    data = bytearray(model.read_bytes())
    with ztensor.open(model) as reader:
        data[reader.location("h.2.w").offset] ^= 1
    model.write_bytes(data)
    assert run("convert", model, "--in-place", "--compression", "zstd").code == ExitCode.CORRUPT
    assert model.read_bytes() == data
