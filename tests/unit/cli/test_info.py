from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file
from ztensor.testing.builder_2 import File2, dense

CORPUS = Path(__file__).parents[2] / "corpus"


def test_json(run: Run, model: Path) -> None:
    found = run("info", model, "--json").json
    size = model.stat().st_size
    assert found["file"] == str(model)
    assert (found["format"], found["container"], found["version"]) == ("zt", "1", "1.2.0")
    assert (found["nbytes"], found["object_count"], found["component_count"]) == (size, 9, 13)
    assert found["formats"][0] == {
        "name": "dense",
        "count": 7,
        "nbytes": 8192 + 4096 + 2048 + 32 + 8 + 3,
    }
    assert found["parameter_count"] == 4 * 64 * 32 + 4 + 1 + 0 + 3 + 2
    assert {kind["name"] for kind in found["formats"]} == {
        "dense",
        "sparse_csr",
        "quantized_group",
    }
    assert found["encodings"] == [{"name": "raw", "count": 13, "nbytes": found["stored_nbytes"]}]
    assert {kind["name"]: kind["count"] for kind in found["types"]}["bfloat16"] == 1
    assert found["digests"] == [{"name": "crc32c", "count": 13, "nbytes": found["stored_nbytes"]}]
    assert (found["digested_count"], found["digested_nbytes"]) == (13, found["stored_nbytes"])
    assert found["attributes"] == {"blob": {"$bytes": "00ff"}, "format": "pt"}
    assert found["commit"] == {"prev": 0, "end": size}
    assert (found["dead_nbytes"], found["shared_nbytes"]) == (0, 0)


@pytest.mark.slow
def test_every_byte_is_accounted_for(run: Run) -> None:
    """Header, blobs, padding, dead bytes, manifest and footer add up to any writer's file."""
    for path in sorted((CORPUS / "real").rglob("*.zt")):
        ended = run("info", path, "--json")
        if ended.code:
            continue
        found = ended.json
        tail = {"0.1": 8, "1.0": 8, "1": 16, "2": 40}[found["container"]]
        assert found["nbytes"] == (
            8
            + found["stored_nbytes"]
            - found["shared_nbytes"]
            + found["padding_nbytes"]
            + found["dead_nbytes"]
            + found["manifest"]["nbytes"]
            + tail
        ), path


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("0.1.0", "version   0.1.0, container 0.1 (ZTEN0001)"),
        ("1.1.0", "version   1.1.0, container 1 (ZTEN1000)"),
        ("2.1", "version    2.1, container 2 (ZT2)"),
    ],
)
def test_versions_and_files_without_objects(
    run: Run, tmp_path: Path, version: str, line: str
) -> None:
    save_file({}, tmp_path / "none.zt", version=version)
    ended = run("info", tmp_path / "none.zt")
    assert ended.code == 0
    assert line in ended.out
    assert "0 objects, 0 components" in ended.out
    assert run("info", tmp_path / "none.zt", "--json").json["types"] == []


def test_attributes_without_an_end_are_cut_for_people_only(
    run: Run, run_on_terminal: Run, tmp_path: Path
) -> None:
    path = tmp_path / "attributes.zt"
    many: dict[str, object] = {f"key {n:04}": "v" * 1000 for n in range(300)}
    save_file({}, path, many)
    text = run_on_terminal("info", path)
    assert "... (1,002 characters)" in text.out
    assert "and 250 more; --json shows all" in text.out
    assert max(map(len, text.lines)) < 300
    whole = run("info", path)
    assert "..." not in whole.out
    assert whole.out.count("v" * 1000) == 300
    assert run("info", path, "--json").json["attributes"] == many
    save_file({}, path, {"k" * 5000: 1, "short": 2})
    assert max(map(len, run_on_terminal("info", path).lines)) < 200
    (line,) = [line for line in run("info", path).lines if line.split() == ["short", "2"]]
    assert len(line) < 50


def test_unused_bytes_of_2_x_are_dead_anywhere(run: Run, tmp_path: Path) -> None:
    """Also behind the manifest, as a killed change leaves it; parts in other files do not count."""
    path = tmp_path / "m.zt"
    file = File2()
    part = file.part(np.arange(600.0))
    whole = file.seal({"objects": {"a": dense(part, [600]), "b": dense(part, [600])}})
    path.write_bytes(whole)
    clean = run("info", "--json", path).json
    assert clean["dead_nbytes"] == 0
    assert clean["shared_nbytes"] == 4800
    path.write_bytes(whole + bytes(20_000) + whole[-40:])
    killed = run("info", "--json", path).json
    assert 20_000 - 4096 < killed["dead_nbytes"] <= 20_040
    assert killed["shared_nbytes"] == 4800
    assert run("compact", path).code == 0
    assert run("info", "--json", path).json["dead_nbytes"] == 0


BLOCKS = ztensor.Tensor({"data": np.zeros(6 * 144, np.uint8)}, shape=(3, 512), format="gguf.q4_k")
ONES = np.ones((10, 10), np.float32)
CANONICAL = {"version": "2.1", "canonical": True}


@pytest.mark.parametrize(
    ("tensors", "options", "count"),
    [
        ({"w": np.ones((128, 64), np.float32)}, {"compression": True}, 8192),
        ({"w": np.float32(3), "empty": np.zeros((0, 5))}, {}, 1),
        ({"w": ztensor.Tensor.csr(np.ones(3), [0, 1, 2], [0, 1, 3], (2, 900))}, {}, 3),
        ({"w": ztensor.Tensor.coo(np.ones(2), [[0, 1], [5, 6]], (2, 900))}, {}, 2),
        ({"w": BLOCKS}, {}, 1536),
        ({"w": ztensor.Tensor.quantize(np.ones((128, 64), np.float32), bits=4)}, {}, 8192),
        ({"a": ONES, "tied": ONES, "c": ONES + 1}, {}, 200),
        ({"a": ONES, "b": ONES + 1, "c": ONES + 2}, {"max_shard_size": 400}, 300),
        # A canonical file stores equal bytes once, whatever their types are.
        ({"a": np.zeros(8, "f4"), "b": np.zeros(32, "u1"), "c": np.zeros(8, "i4")}, CANONICAL, 48),
    ],
    ids=["zstd", "scalar", "csr", "coo", "blocks", "int4", "tied", "shards", "canonical"],
)
def test_parameters_are_counted_once(
    run: Run, tmp_path: Path, tensors: dict[str, Any], options: dict[str, Any], count: int
) -> None:
    save_file(tensors, tmp_path / "m.zt", **options)
    path = tmp_path if "max_shard_size" in options else tmp_path / "m.zt"
    assert run("info", path, "--json").json["parameter_count"] == count
