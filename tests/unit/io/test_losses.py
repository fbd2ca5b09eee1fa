"""Content that a reader does not give is reported whenever a file is copied."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor import Reader
from ztensor.errors import NotRepresentableError
from ztensor.ext import Tally, Unrepresented
from ztensor.numpy import save_file

A = np.arange(4.0)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Unrepresented("graph"), "graph"),
        (Unrepresented("code", "a/b.py", nbytes=1234), "code 'a/b.py', 1,234 bytes"),
        (Unrepresented("tuple", "x", 3), "tuple 'x', 3 of them"),
        (Unrepresented("text", "\x1b[31m"), "text '\\x1b[31m'"),
    ],
    ids=str,
)
def test_it_is_part_of_a_sentence(one: Unrepresented, text: str) -> None:
    assert str(one) == text


@pytest.mark.parametrize(("length", "shown"), [(256, "x" * 256), (257, "x" * 256 + "...")])
def test_a_long_place_is_cut(length: int, shown: str) -> None:
    tally = Tally()
    tally.add("code", "x" * length, nbytes=3)
    tally.add("code", "x" * length, nbytes=4)
    assert tally() == [Unrepresented("code", shown, 2, 7)]


def test_after_200_entries_only_totals_grow() -> None:
    tally = Tally()
    for number in range(203):
        tally.add(f"kind {number}", nbytes=2)
    *listed, rest = tally()
    assert [entry.kind for entry in listed] == [f"kind {number}" for number in range(200)]
    assert (rest.count, rest.nbytes) == (3, 6)


def test_a_file_of_ours_says_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    save_file({"a": A}, path, {"k": 1})
    with ztensor.open(path) as reader:
        assert reader.unrepresented == ()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader that does not give all of its file."""
    path = tmp_path / "a.zt"
    save_file({"a": A}, path)
    found = ztensor.open(path)
    vars(found.objects)["_account"] = lambda: [Unrepresented("graph", "main", 3, 100)]
    return found


@pytest.mark.wing
@pytest.mark.parametrize("name", ["b.zt", "b.safetensors", "b.npz", "b.gguf", "b.npy"])
def test_a_conversion_says_what_is_left_behind(reader: Reader, tmp_path: Path, name: str) -> None:
    report = ztensor.convert(reader, tmp_path / name, check=True)
    assert "left out: graph 'main', 3 of them, 100 bytes" in [one.sentence for one in report.lost]
    assert not report.is_lossless
    (tmp_path / name).unlink()
    with pytest.raises(NotRepresentableError):
        ztensor.convert(reader, tmp_path / name, strict=True)
    assert not (tmp_path / name).exists()


def test_a_set_says_what_its_index_and_shards_do_not_share(tmp_path: Path) -> None:
    save_file({"a": A, "hidden": A + 1}, tmp_path / "1.zt", {"of": "one", "same": 1})
    save_file({"b": A}, tmp_path / "2.zt", {"of": "two", "same": 1})
    index = {
        "metadata": {"total_size": 64, "quantized_by": "a tool"},
        "weight_map": {"a": "1.zt", "b": "2.zt"},
    }
    (tmp_path / "m.zt.index.json").write_text(json.dumps(index), "utf-8")
    with ztensor.open(tmp_path / "m.zt.index.json") as several:
        assert several.unrepresented == (
            Unrepresented("object that the index does not name", "1.zt: hidden", nbytes=32),
            Unrepresented("attribute of one shard", "1.zt: of"),
            Unrepresented("note of the index", "quantized_by"),
        )


@pytest.mark.wing
def test_fields_of_no_version_are_lost_where_the_new_file_has_no_place_for_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.zt"
    save_file({"a": A}, path)
    with ztensor.open(path) as found:
        file = found.objects.parts()[0]
        file.manifest = file.manifest._replace(extra={"from_tomorrow": 1})
        kept = ztensor.convert(found, tmp_path / "b.zt")
        assert kept.is_lossless
        for name, version in (("c.zt", "0.1.0"), ("d.npz", "1.2.0")):
            report = ztensor.convert(found, tmp_path / name, version=version)
            assert any("from_tomorrow" in one.sentence for one in report.lost)
