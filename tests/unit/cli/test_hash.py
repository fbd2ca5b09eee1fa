from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file
from ztensor.testing.builder_2 import File2, dense, one_object


@pytest.fixture
def twin(model: Path) -> Path:
    """The same tensors, stored otherwise."""
    path = model.with_name("twin.zt")
    ztensor.convert(model, path, compression=True)
    return path


def test_lines_as_of_sha256sum_and_json(run: Run, model: Path, twin: Path) -> None:
    text, ids = ztensor.content_hash(model), ztensor.insight.tensor_hashes(model)
    ended = run("hash", model, twin)
    assert (ended.code, ended.lines) == (0, [f"{text}  {model}", f"{text}  {twin}"])
    facts = run("hash", model, "--tensors", "--json").json
    assert facts == {
        "attributes": False,
        "files": [{"file": str(model), "id": text, "tensors": ids}],
    }
    lines = run("hash", model, "--tensors").lines
    assert lines[1:] == [f"{digest}  {name}" for name, digest in ids.items()]
    (line,) = run("hash", model, "--attributes").lines
    assert line.split()[0] == ztensor.content_hash(model, attributes=True)
    flip_object(model, "h.2.w")
    ended = run("hash", model)
    assert (ended.code, ended.out) == (ExitCode.CORRUPT, "")
    assert "digest" in ended.err


def test_check(run: Run, model: Path, twin: Path, tmp_path: Path) -> None:
    listing = tmp_path / "ids"
    listing.write_text(run("hash", model, twin).out)
    ended = run("hash", "--check", listing)
    assert (ended.code, ended.lines[0]) == (0, f"{model}: ok")
    assert ended.lines[2] == "2 of 2 files as listed"
    save_file({"w": np.zeros(3)}, twin)
    ended = run("hash", "--check", listing)
    assert ended.code == ExitCode.FAILED
    assert ended.lines[1] == f"{twin}: DIFFERENT"
    assert run("hash", "--check", listing, "-q").err == f"{twin}: DIFFERENT\n"
    os.unlink(twin)
    ended = run("hash", "--check", listing, "--json")
    assert ended.code == ExitCode.FAILED
    assert ended.json["ok"] is False
    assert [file["ok"] for file in ended.json["files"]] == [True, False]
    assert "error" in ended.json["files"][1]


@pytest.mark.parametrize("text", ["", "hello\n", "abc  m.zt\n", f"{'0' * 64} \n"])
def test_a_list_that_is_none(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "ids").write_text(text)
    assert run("hash", "--check", tmp_path / "ids").code == ExitCode.CORRUPT


@pytest.mark.parametrize("algorithm", ["xxh3", "sha256"])
def test_content_digest(run: Run, tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "two.zt"
    path.write_bytes(one_object())
    text = ztensor.insight.content_digest(path, algorithm)
    given = ("--content", "--algorithm", algorithm)
    assert run("hash", *given, path).lines == [f"{text}  {path}"]
    assert run("hash", *given, path, "--json").json["files"] == [{"file": str(path), "id": text}]
    (tmp_path / "ids").write_text(run("hash", *given, path).out + run("hash", path).out)
    assert run("hash", "--check", tmp_path / "ids").lines[-1] == "2 of 2 files as listed"
    file = File2()
    path.write_bytes(file.seal({"objects": {"w": dense(file.part(np.zeros(6)), [6])}}))
    assert run("hash", "--check", tmp_path / "ids").code == ExitCode.FAILED


def test_content_digest_is_of_2_x_and_of_all(run: Run, model: Path) -> None:
    ended = run("hash", "--content", model)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "component 'data'" in ended.err
    for option in (("--tensors",), ("--attributes",), ("--include", "*")):
        assert run("hash", "--content", *option, model).code == ExitCode.USAGE
    assert run("hash", "--content", "--algorithm", "crc32c", model).code == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments",
    [(), ("m.zt", "--check", "ids"), ("--check", "ids", "--tensors")],
    ids=["nothing", "both", "tensors"],
)
def test_wrong_arguments(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("hash", *arguments).code == ExitCode.USAGE
