"""The canonical form of 2.x: recognised, and written byte for byte as by the releases."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentValueError, NotRepresentableError, UsageError
from ztensor.numpy import save, save_file

CORPUS = Path(__file__).parents[3] / "corpus2"
ENTRIES = [
    entry
    for entry in json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
    if entry["expect"] == "accept"
]
# One tensor at 65536: there is only one way to write that, and the corpus does not ask for it.
BY_CHANCE = ["spec/sharded/model-00002-of-00002.zt"]
CANONICAL = [entry["path"] for entry in ENTRIES if entry.get("canonical")]
TENSORS: dict[str, Any] = {
    "b": np.arange(5, dtype=np.float32), "a": np.arange(100_000), "aa": np.zeros((0, 3)),
    "z": np.arange(100_000), "é": np.arange(100_000).view(np.uint64), "none": np.zeros(0, np.int8),
    "on": np.array([True, False]), "scalar": np.float32(2).reshape(()),
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["path"])
def test_the_corpus_says_which_are(entry: dict[str, Any]) -> None:
    problems = ztensor.insight.canonical_problems(CORPUS / entry["path"])
    is_canonical = entry.get("canonical") or entry["path"] in BY_CHANCE
    assert (not problems) == bool(is_canonical), problems


@pytest.mark.parametrize("path", CANONICAL)
@pytest.mark.parametrize("by", ["convert", "save_file", "merge", "migrate"])
def test_they_are_written_as_they_are(path: str, by: str, tmp_path: Path) -> None:
    source, target = CORPUS / path, tmp_path / "a.zt"
    how: dict[str, Any] = {"version": "2.1", "canonical": True}
    if by == "convert":
        ztensor.convert(source, target, check=True, **how)
    elif by == "merge":
        ztensor.merge([source], target, **how)
    elif by == "migrate":
        ztensor.migrate(source, target, **how)
    else:
        with ztensor.open(source) as reader:
            tensors = {name: reader.read(name) for name in reversed(list(reader))}
            save_file(tensors, target, reader.attributes or None, **how)
    assert target.read_bytes() == source.read_bytes()


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    data = save(TENSORS, {"step": 1}, version="2.1", canonical=True)
    assert ztensor.insight.canonical_problems(data) == []
    assert data == save(dict(reversed(TENSORS.items())), {"step": 1}, version="2", canonical=True)
    others: list[dict[str, Any]] = [
        {}, {"version": "2.1", "alignment": 4096, "compression": True}, {"compression": True},
    ]  # fmt: skip
    for number, options in enumerate(others):
        path, again = tmp_path / f"{number}.zt", tmp_path / f"{number}-again.zt"
        save_file(TENSORS, path, {"step": 1}, **options)
        ztensor.convert(path, again, version="2.1", canonical=True)
        assert again.read_bytes() == data
    with ztensor.open(data) as reader:
        places = {name: reader.location(name).offset for name in reader}
        assert places["a"] == places["z"] == places["é"]
        assert reader.verify(deep=True).outcome == "ok"
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(reader[name], array)


def test_deviations_from_the_canonical_form() -> None:
    good = bytearray(save({"a": np.arange(3), "b": np.arange(9000)}, version="2", canonical=True))
    assert not ztensor.insight.canonical_problems(bytes(good))
    dirty = bytearray(good)
    dirty[65536 + 30] = 1
    assert ztensor.insight.canonical_problems(bytes(dirty)) != []
    reserved = bytearray(good)
    reserved[-10] = 1
    assert "footer" in ztensor.insight.canonical_problems(bytes(reserved))[0]
    others: list[tuple[str, dict[str, Any]]] = [
        ("begins", {"alignment": 4096}),
        ("raw", {"compression": True}),
        ("xxh3", {"checksum": "sha256"}),
        ("xxh3", {"checksum": None}),
        ("elsewhere", {"deduplicate": False}),
    ]
    for word, options in others:
        array = np.zeros(9000)
        data = save({"a": array, "b": array}, version="2", **options)
        assert any(word in problem for problem in ztensor.insight.canonical_problems(data)), word
    assert ztensor.insight.canonical_problems(save({})) == ["it is not a file of 2.x"]


@pytest.mark.parametrize(
    "options",
    [
        {"version": "1.2.0"},
        {"compression": True},
        {"checksum": "sha256"},
        {"checksum": None},
        {"alignment": 4096},
    ],
    ids=str,
)
def test_options_of_another_form_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentValueError):
        ztensor.Writer(io.BytesIO(), **{"version": "2.1", "canonical": True, **options})


def test_the_order_of_names_is_kept() -> None:
    target = io.BytesIO()
    with ztensor.Writer(target, version="2.1", canonical=True) as writer:
        writer.write("b", np.arange(3))
        with pytest.raises(UsageError, match="behind"):
            writer.write("a", np.arange(3))
        with pytest.raises(UsageError, match="stream"):
            writer.stream("c", (3,), "float32")
        with pytest.raises(ArgumentValueError):
            writer.write("c", np.arange(3), compress=True)
        with pytest.raises(NotRepresentableError, match="NFC"):
            writer.write("e\u0301", np.arange(3))
        writer.share("z", "b")
    assert ztensor.insight.canonical_problems(target.getvalue()) == []
