"""`migrate`, `compress` and `decompress`: a file rewritten, and proven to be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import ztensor
from ztensor.cli.exits import ExitCode
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run

TENSORS = {"w": np.zeros((100, 100), np.float32), "b": np.arange(10)}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.zt"
    save_file(TENSORS, path, version="0.1.0")
    return path


def test_a_file_is_migrated_in_its_place_and_back(run: Run, old: Path) -> None:
    before = ztensor.content_hash(old)
    ended = run("migrate", old)
    assert ended.code == 0
    assert ended.lines[0].startswith(f"{old}: written, zt 1.2.0, of 2 objects, ")
    assert ended.lines[0].endswith("; nothing is lost, read back and compared")
    assert ztensor.open(old).version == "1.2.0"
    facts = run("migrate", old, "--to", "0.1.0", "--json").json
    assert (facts["version"], facts["checked"], facts["lossless"]) == ("0.1.0", True, True)
    assert ztensor.open(old).version == "0.1.0"
    assert ztensor.content_hash(old) == before


def test_what_an_older_version_cannot_say(run: Run, model: Path, tmp_path: Path) -> None:
    before = model.read_bytes()
    ended = run("migrate", model, "--to", "0.1.0")
    assert ended.code == ExitCode.USAGE
    assert "cannot represent everything" in ended.err
    assert run("migrate", model, "--to", "0.1.0", "--lossy").code == ExitCode.USAGE
    assert model.read_bytes() == before
    ended = run("migrate", model, "--to", "0.1.0", "--lossy", "-o", tmp_path / "new.zt")
    assert ended.code == 0
    assert {"sparse", "int4", "h.10.fp8"} <= {line.split()[0] for line in ended.lines}


def test_compress_and_decompress(run: Run, model: Path, tmp_path: Path) -> None:
    before = ztensor.content_hash(model, attributes=True)
    size = model.stat().st_size
    facts = run("compress", model, "--level", "19", "--json").json
    assert facts["nbytes"] == {"before": size, "after": model.stat().st_size}
    assert model.stat().st_size < size
    ended = run("decompress", model, "-o", tmp_path / "raw.zt")
    assert ended.code == 0
    for path, encodings in ((model, {"raw", "zstd"}), (tmp_path / "raw.zt", {"raw"})):
        assert ztensor.content_hash(path, attributes=True) == before
        listed = run("ls", path, "--json").json["files"][0]["objects"]
        found = {word for one in listed for word in one["encoding"].split(",")}
        assert found == encodings


@pytest.mark.parametrize("verb", ["migrate", "compress", "decompress"])
def test_a_dry_run_changes_nothing(run: Run, old: Path, verb: str) -> None:
    before = old.read_bytes()
    ended = run(verb, old, "--dry-run")
    assert ended.code == 0
    assert "not written" in ended.out
    assert old.read_bytes() == before


@pytest.mark.parametrize("verb", ["migrate", "compress", "decompress"])
def test_a_file_that_exists_is_kept(run: Run, old: Path, tmp_path: Path, verb: str) -> None:
    new = tmp_path / "new.zt"
    new.write_bytes(b"old")
    assert run(verb, old, "-o", new).code == ExitCode.USAGE
    assert new.read_bytes() == b"old"
    assert run(verb, old, "-o", new, "--force").code == 0
    assert ztensor.content_hash(new) == ztensor.content_hash(old)


@pytest.mark.parametrize("verb", ["migrate", "compress", "decompress"])
def test_another_writer_has_the_file(run: Run, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "m.zt"
    save_file(TENSORS, path)
    with ztensor.Editor(path):
        assert run(verb, path).code == ExitCode.FAILED
        assert run(verb, path, "--no-lock").code == 0


@pytest.mark.parametrize(
    "arguments",
    [("migrate", "--to", "7"), ("compress", "--level", "40"), ("migrate", "--checksum", "md5")],
    ids=" ".join,
)
def test_what_is_wrong_to_ask(run: Run, old: Path, arguments: tuple[str, ...]) -> None:
    before = old.read_bytes()
    verb, *options = arguments
    assert run(verb, old, *options).code == ExitCode.USAGE
    assert old.read_bytes() == before


def test_a_damaged_file_stays_as_it_is(run: Run, model: Path) -> None:
    data = bytearray(model.read_bytes())
    with ztensor.open(model) as reader:
        data[reader.location("h.2.w").offset] ^= 1
    model.write_bytes(data)
    assert run("compress", model).code == ExitCode.CORRUPT
    assert model.read_bytes() == data
