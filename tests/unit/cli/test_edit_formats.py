"""The verbs that change files, on safetensors and GGUF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file

ARRAYS = {"a.weight": np.ones((4, 8), np.float32), "b": np.arange(7, dtype=np.int8)}


@pytest.fixture(params=["m.safetensors", "m.gguf"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    save_file(ARRAYS, path, {"note": "old", "general.name": "x"})
    return path


def test_a_dry_run_says_what_would_be_written(run: Run, file: Path) -> None:
    before = file.read_bytes()
    planned = run("set", file, "note=new", "--remove", "general.name", "--dry-run")
    assert planned.code == 0
    assert '"old" -> "new"' in planned.out
    assert "a new file would replace it" in planned.out
    assert file.read_bytes() == before
    ended = run("set", file, "note=new", "--remove", "general.name", "--json").json
    assert ended["nbytes"]["after"] == file.stat().st_size
    assert ended["changes"][0]["after"] == "new"
    with ztensor.open(file) as reader:
        assert {k: v for k, v in reader.attributes.items() if k != "GGUF.types"} == {"note": "new"}


def test_losses_of_an_added_object_are_listed(run: Run, tmp_path: Path, file: Path) -> None:
    other = tmp_path / "other.zt"
    with ztensor.Writer(other) as writer:
        writer.write("q", np.arange(3.0), attributes={"unit": "m"})
    ended = run("append", file, other, "--json")
    assert ended.code == 0
    assert ended.json["lost"][0]["object"] == "q"
    assert "unit" in ended.err
    ended = run("replace", file, "b", other, "--from", "q", "--json")
    assert ended.json["changes"][0]["after"]["elements"] == "float64"
    with ztensor.open(file) as reader:
        assert list(reader) == ["a.weight", "b", "q"]
        assert reader["b"].tolist() == [0, 1, 2]


LOSSY = {
    "sparse": ztensor.Tensor.csr([1.5], [2], [0, 1], (1, 3)),
    "int4": ztensor.Tensor.quantize(np.ones((2, 32), np.float32), bits=4, group_size=32),
    "complex": np.ones(2, np.complex128),
}
REFUSED = {
    "compress": ("append", "{}", "{array}", "--compress"),
    "checksum": ("append", "{}", "{array}", "--checksum", "sha256"),
    "a checksum that is no other": ("append", "{}", "{array}", "--checksum", "crc32c"),
    "a sparse object": ("append", "{}", "{lossy}", "--include", "sparse"),
    "a sparse object in place": ("replace", "{}", "b", "{lossy}", "--from", "sparse"),
    "a quantized object": ("append", "{}", "{lossy}", "--include", "int4"),
    "a complex one": ("append", "{}", "{lossy}", "--include", "complex"),
    "a complex one in place": ("replace", "{}", "b", "{lossy}", "--from", "complex"),
    "object": ("set", "{}", "k=v", "--object", "b"),
    "a type": ("set", "{}", "k=1", "--type", "foo"),
    "a type of lists": ("set", "{}", "k=1", "--type", "[foo]"),
    "no type": ("set", "{}", "k=1", "--type", ""),
    "too large": ("set", "{}", "k=1e400", "--type", "f32"),
    "too large in JSON": ("set", "{}", "k=1e400", "--type", "f32", "--json-values"),
    "no key": ("set", "{}", "--remove", "none"),
    "taken": ("mv", "{}", "b", "a.weight"),
    "no pattern": ("rm", "{}", "--include", "z*"),
    "text": ("append", "{}", "{text}"),
    "accept": ("repair", "{}", "--accept", "9"),
    "suffix": ("repair", "{}", "--write", "out.zt"),
    "compact": ("compact", "{}"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_leave_the_file(run: Run, tmp_path: Path, file: Path, case: str) -> None:
    np.save(tmp_path / "array.npy", np.arange(3, dtype=np.float32))
    np.save(tmp_path / "text.npy", np.array(["text"]))
    with ztensor.Writer(tmp_path / "lossy.zt") as writer:
        for name, tensor in LOSSY.items():
            writer.write(name, tensor, attributes={"unit": "m"})
    names = {
        "{}": file,
        "{lossy}": tmp_path / "lossy.zt",
        "{array}": tmp_path / "array.npy",
        "{text}": tmp_path / "text.npy",
    }
    before = file.read_bytes()
    ended = run(*(names.get(word, word) for word in REFUSED[case]))
    assert ended.code in (ExitCode.USAGE, ExitCode.UNSUPPORTED)
    assert ended.err.startswith("error: ")
    assert file.read_bytes() == before


def test_a_type_is_for_gguf(run: Run, tmp_path: Path) -> None:
    for name in ("m.zt", "m.safetensors", "m.gguf"):
        path = tmp_path / name
        save_file(ARRAYS, path)
        ended = run("set", path, "k=5", "--type", "u16")
        assert ended.code == (0 if name == "m.gguf" else ExitCode.USAGE)
    assert ztensor.open(path).attributes == {"k": 5, "GGUF.types": [["k", "u16"]]}


def test_a_repair_shows_and_drops_what_is_wrong(run: Run, file: Path) -> None:
    sound = file.read_bytes()
    assert run("repair", file).code == 0
    file.write_bytes(sound + b"x" * 40)
    found = run("repair", file, "--json")
    assert found.code == ExitCode.FAILED
    assert [finding["kind"] for finding in found.json["findings"]] == ["tail"]
    tried = run("repair", file, "--in-place", "--dry-run")
    assert tried.code == 0
    assert "would be written" in tried.out
    assert file.read_bytes() == sound + b"x" * 40
    mended = file.with_name(f"mended{file.suffix}")
    assert run("repair", file, "--write", mended).code == 0
    assert run("repair", file, "--in-place").code == 0
    assert file.read_bytes() == mended.read_bytes() == sound
    file.write_bytes(sound[:-40])
    found = run("repair", file)
    assert found.code == ExitCode.FAILED
    assert "--drop-lost" in found.out
    assert run("repair", file, "--in-place").code == ExitCode.CORRUPT
    assert file.read_bytes() == sound[:-40]
    assert run("repair", file, "--in-place", "--drop-lost", "--drop-tail").code == 0
    assert run("verify", file).code == 0
