from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file

NAMES = ["bias", "empty", "flags", "h.10.fp8", "h.10.w", "h.2.w", "int4", "scalar", "sparse"]


def names(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[1:]]


def test_columns_without_a_terminal(run: Run, model: Path) -> None:
    ended = run("ls", model)
    assert ended.code == 0
    rows = [line.split() for line in ended.lines]
    assert rows[0] == ["name", "shape", "type", "format", "encoding", "size", "digest"]
    assert {len(row) for row in rows} == {7}
    found = {row[0]: row[1:] for row in rows}
    assert list(found)[1:] == NAMES
    assert found["h.2.w"] == ["[64,32]", "float32", "dense", "raw", "8192", "crc32c"]
    assert found["h.10.w"] == ["[64,32]", "bfloat16", "dense", "raw", "4096", "crc32c"]
    assert found["h.10.fp8"][1] == "f8_e4m3fn"
    assert found["scalar"][0] == "[]"
    assert found["empty"][0] == "[0,4]"
    assert found["empty"][4] == "0"
    assert found["sparse"][2] == "sparse_csr"
    assert found["int4"][2] == "quantized_group"
    lines = [line for line in ended.lines if " dense " in line]
    assert len({line.index(" dense ") for line in lines}) == 1  # aligned


def test_several_files_have_a_column_of_their_names(run: Run, model: Path) -> None:
    other = model.with_name("other.zt")
    save_file({"only": np.zeros(3)}, other)
    rows = [line.split() for line in run("ls", model, other).lines]
    assert rows[0][:2] == ["file", "name"]
    assert [row[0] for row in rows[1:]] == [str(model)] * len(NAMES) + [str(other)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--include", "h.*"], ["h.10.fp8", "h.10.w", "h.2.w"]),
        (["--include", "h.*", "--include", "bias"], ["bias", "h.10.fp8", "h.10.w", "h.2.w"]),
        (["--include", "h.*", "--exclude", "*.w"], ["h.10.fp8"]),
        (["--exclude", "*[0-9]*"], ["bias", "empty", "flags", "scalar", "sparse"]),
        (["--include", "H.*"], []),
        (["--include", "no such"], []),
    ],
)
def test_selection(run: Run, model: Path, options: list[str], expected: list[str]) -> None:
    ended = run("ls", model, *options)
    assert ended.code == (0 if expected else 2)
    assert names(ended.lines) == expected


def test_sort(run: Run, model: Path) -> None:
    by_name = names(run("ls", model, "--sort", "name").lines)
    assert by_name.index("h.2.w") < by_name.index("h.10.w")
    assert by_name[0] == "bias"
    sizes = [int(line.split()[5]) for line in run("ls", model, "--sort", "size").lines[1:]]
    assert sizes == sorted(sizes, reverse=True)
    with ztensor.open(model) as reader:
        offsets = {
            found.name: min(part.offset for part in found.components.values())
            for found in reader.metadata(list(reader))
        }
    by_offset = names(run("ls", model, "--sort", "offset").lines)
    assert [offsets[name] for name in by_offset] == sorted(offsets.values())


def test_numbers_in_names_may_have_any_length(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "digits.zt"
    digits = ["9" * 5000, "1", "01", "x", "", "2x10", "2x9"]
    save_file({name: np.zeros(1) for name in digits}, path)
    listing = run("ls", path, "--sort", "name", "--json").json["files"][0]["objects"]
    assert [found["name"] for found in listing] == ["", "01", "1", "2x9", "2x10", "9" * 5000, "x"]


def test_json(run: Run, model: Path) -> None:
    (listing,) = run("ls", model, "--json").json["files"]
    assert {key: listing[key] for key in ("file", "version", "object_count")} == {
        "file": str(model),
        "version": "1.2.0",
        "object_count": 9,
    }
    objects = {found.pop("name"): found for found in listing["objects"]}
    assert objects["h.10.fp8"] == {
        "shape": [64, 32],
        "dtype": "uint8",
        "type": "f8_e4m3fn",
        "elements": "f8_e4m3fn",
        "format": "dense",
        "encoding": "raw",
        "digest": "crc32c",
        "stored_nbytes": 2048,
    }
    assert listing["stored_nbytes"] == sum(found["stored_nbytes"] for found in objects.values())


def test_a_narrow_terminal_loses_columns_that_say_nothing(
    run_on_terminal: Run, tmp_path: Path
) -> None:
    path = tmp_path / "layers.zt"
    save_file({f"model.layers.{n}.self_attn.q_proj.weight": np.zeros(4) for n in range(12)}, path)
    ended = run_on_terminal("ls", path, width=70)
    assert "digest" not in ended.lines[0]
    assert ended.lines[-1].startswith("12 objects, 384 B, ")
    assert "encoding raw, digest crc32c" in ended.lines[-1]
    assert all(len(line) <= 70 for line in ended.lines[1:-1])
    some = run_on_terminal("ls", path, "--include", "*.1*", width=200)
    assert "digest" in some.lines[0]
    assert "3 of 12 objects" in some.lines[-1]


def test_a_narrow_terminal_folds_names(run_on_terminal: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.zt"
    name = "abcdefghij" * 9
    save_file({name: np.zeros(1), "重み" * 20: np.zeros(2)}, path)
    ended = run_on_terminal("ls", path, width=60)
    first = [
        line.split("  ")[0] if index == 0 else line[2:]
        for index, line in enumerate(
            line for line in ended.lines[1:-1] if "重" not in line and "み" not in line
        )
    ]
    assert "".join(first) == name
    assert all(len(line) <= 60 for line in ended.lines[1:-1])
    name = "encoder.layers.10.self_attention.output.dense.weight"
    save_file({name: np.zeros(1), name * 2: np.zeros(2)}, path)
    lines = [line.split("  ") for line in run_on_terminal("ls", path, width=60).lines]
    folded = [line[0] or line[1] for line in lines[1:-1]]
    assert "".join(folded) == name * 3
    assert [part[-1] for part in folded[:2]] == [".", "t"]  # between words


def test_files_of_a_folder_that_are_no_parts_of_one_model_are_listed_each(
    run: Run, tmp_path: Path
) -> None:
    for number in (2, 10):
        save_file({"w": np.zeros(number)}, tmp_path / f"{number}.safetensors")
    (tmp_path / "notes.txt").write_text("no model")
    rows = [line.split() for line in run("ls", tmp_path).lines[1:]]
    files = [str(tmp_path / name) for name in ("2.safetensors", "10.safetensors")]
    assert [row[:3] for row in rows] == [[files[0], "w", "[2]"], [files[1], "w", "[10]"]]
    listed = run("ls", tmp_path, "--json").json["files"]
    assert [one["file"] for one in listed] == files


def test_a_summary_has_a_line_for_each_file(run: Run, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    save_file({"w": np.zeros((5, 2), np.float32)}, other)
    rows = [line.split() for line in run("ls", "--summary", model, other).lines]
    assert rows[0] == ["file", "objects", "parameters", "size", "types"]
    assert rows[1][:3] == [str(model), "9", "8202"]
    assert rows[1][4].startswith("float32,bfloat16,f8_e4m3fn,int4_g")
    assert rows[2] == [str(other), "1", "10", "40", "float32"]
    some = run("ls", "--summary", "--json", model, "--include", "h.2.w", "missing").json["files"]
    assert some[0]["parameter_count"] == 64 * 32
    assert (some[0]["listed_count"], some[0]["object_count"]) == (1, 9)
    assert some[0]["types"] == "float32"
    assert "objects" not in some[0]
    assert "error" in some[1]
