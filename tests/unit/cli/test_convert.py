"""`convert`: files as files of other formats, versions and encodings."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file

WEIGHT = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.npz"
    np.savez(path, w=WEIGHT, b=WEIGHT[0], step=np.array(7))
    return path


def test_convert_says_what_it_did(run: Run, plain: Path, tmp_path: Path) -> None:
    new = tmp_path / "m.zt"
    facts = run("convert", plain, new, "--check", "--json").json
    sizes = {"before": plain.stat().st_size, "after": new.stat().st_size}
    assert facts == {
        "file": str(plain),
        "output": str(new),
        "files": [str(new)],
        "dry_run": False,
        "format": "zt",
        "version": "1.2.0",
        "object_count": 3,
        "nbytes": sizes,
        "lossless": True,
        "lost": [],
        "unrepresented": [],
        "checked": True,
        "unchecked": [],
        "changed": [],
        "deleted": [],
    }
    before, after = (f"{size / 1000:.1f} kB" for size in sizes.values())
    ended = run("convert", plain, new, "--force")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"{new}: written, zt 1.2.0, of 3 objects, {before} -> {after}; nothing is lost\n"
    )
    assert ztensor.content_hash(plain) == ztensor.content_hash(new)


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
def test_compression_and_chunk_rows(run: Run, tmp_path: Path, text: str, encoding: str) -> None:
    old, new = tmp_path / "old.zt", tmp_path / "new.zt"
    save_file({"w": WEIGHT}, old, compression=True)
    assert run("convert", old, new, "--compression", text).code == 0
    with ztensor.open(new) as reader:
        component = reader.metadata("w").components["data"]
    assert component.encoding == encoding
    if text == "zstd":  # each frame has a head of its own
        rows = ("--compression", "zstd", "--chunk-rows", "1")
        assert run("convert", old, new, *rows, "--force").code == 0
        assert run("convert", old, "--in-place", *rows).code == 0
        for path in (old, new):
            with ztensor.open(path) as reader:
                assert reader.metadata("w").components["data"].length > component.length


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


RECIPE = """
[[rule]]
from = ["w", "v"]
to = "wv"
steps = [{ concatenate = 0 }]

[[rule]]
keep = "b"
"""


def test_a_recipe_there_and_back(run: Run, tmp_path: Path) -> None:
    old, new, back = (tmp_path / name for name in ("old.zt", "new.safetensors", "back.zt"))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    save_file({"w": WEIGHT, "v": WEIGHT + 1, "b": WEIGHT[0]}, old)
    arguments = (old, new, "--recipe", recipe)
    facts = run("convert", *arguments, "--dry-run", "--json").json
    assert not new.exists()
    assert facts["object_count"] == 2
    rows = [list(row.values()) for row in facts["recipe"]]
    assert [*facts["recipe"][0]] == ["rule", "sources", "source_shapes", "name", "shape", "dtype"]
    assert rows == [
        [2, ["b"], [[16]], "b", [16], "float32"],
        [1, ["w", "v"], [[16, 16], [16, 16]], "wv", [32, 16], "float32"],
    ]
    out = run("convert", *arguments, "--dry-run").out
    assert "w +1  [16,16]  wv  [32,16]  float32" in out
    assert run("convert", *arguments).code == 0
    assert run("convert", new, back, "--recipe", recipe, "--reverse", "--check").code == 0
    assert ztensor.content_hash(old) == ztensor.content_hash(back)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["new.zt", "--recipe", ""], "empty path"),
        (["r.toml", "--to", "zt", "--recipe", "r.toml", "--force"], "one file"),
    ],
)
def test_recipes_that_cannot_be_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE)
    save_file({"w": WEIGHT, "v": WEIGHT + 1, "b": WEIGHT[0]}, "old.zt")
    ended = run("convert", "old.zt", *arguments)
    assert ended.code == 2
    assert word in ended.err
    assert Path("r.toml").read_text() == RECIPE
    assert not Path("new.zt").exists()


def test_losses_are_listed(run: Run, model: Path) -> None:
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


@pytest.mark.parametrize("name", ["m.zt", "m.safetensors"])
def test_a_dry_run_changes_nothing(run: Run, plain: Path, tmp_path: Path, name: str) -> None:
    ended = run("convert", plain, tmp_path / name, "--dry-run", "--delete-input")
    assert ended.code == 0
    assert "not written; it would be" in ended.out
    assert list(tmp_path.iterdir()) == [plain]


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
    lines = run(*words).lines
    assert len(lines) == 3
    assert "; and 49 more of the kind" in lines[1]
    listed = run(*words, "--losses", "--force")
    assert all(f"'key {number}'" in listed.out for number in range(50))
    facts = run(*words, "--force", "--json").json["lost"]
    assert len(facts) == 50
    assert len({loss["kind"] for loss in facts}) == 1


OF_NEW_FILES = [
    ("--to", "npz"), ("--dtype", "float16"), ("--dequantize",), ("--include", "w"),
    ("--max-shard-size", "1MB"), ("--delete-input",), ("--jobs", "2"), ("--pickled",),
]  # fmt: skip


CHANGING = [("--dequantize",), ("--dtype", "float32"), ("--quantize", "int4")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "{in}", "{dir}/m.zt", "--delete-input", "--include", "w"),
        *(("convert", "{in}", "{dir}/m.zt", "--delete-input", *words) for words in CHANGING),
        ("convert", "{in}", "{dir}/m.zt", "--dtype", "int8"),
        ("convert", "{in}", "{dir}/m.zt", "--chunk-rows", "0", "--compression", "3"),
        ("convert", "{in}", "{dir}/m.zt", "--chunk-rows", "4"),
        ("convert", "{in}", "{dir}/m.npy", "--strict"),
        ("convert", "{in}", "{dir}/m.npy", "--delete-input"),
        ("convert", "-", "{dir}/m.zt", "--delete-input"),
        ("convert", "{in}", "{dir}/m.zt", "--delete-input", "--recipe", "{in}"),
        ("convert", "{in}", "{dir}/m.zt", "--reverse"),
        ("convert", "{in}", "{dir}/m.zt", "--recipe", "{in}"),
        ("convert", "{in}", "{dir}/new/", "--recipe", "{in}"),
        ("convert", "{in}", "--in-place", "--recipe", "{in}"),
        ("convert", "{dir}", "{dir}/new", "--recipe", "{in}"),
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
def test_wrong_arguments(run: Run, plain: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    before = plain.read_bytes()
    asked = [text.replace("{in}", str(plain)).replace("{dir}", str(tmp_path)) for text in arguments]
    ended = run(*asked)
    assert ended.code == ExitCode.USAGE
    assert ended.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == [plain]
    assert plain.read_bytes() == before


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
