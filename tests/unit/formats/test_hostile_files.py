"""Hostile and damaged files of every format: an error of ours, or a right result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ztensor
from tests.corpus.foreign import make_npz, make_onnx, make_safetensors
from tests.extent import amount
from tests.tracing import traced
from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError
from ztensor.testing.damage import damaged, random_damage
from ztensor.testing.promise import exercise

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
LIMITS = ztensor.Limits(decoded_bytes=1 << 20)
FORMATS = ("gguf", "hdf5", "npz", "onnx", "pt", "safetensors")


def hostile() -> Iterator[Any]:
    """Yield each file with the stage and the reason of its refusal."""
    for listing in sorted((CORPUS / "reject").glob("*/expected.json")):
        kind = listing.parent.name
        for name, said in json.loads(listing.read_text("utf-8")).items():
            path = listing.with_name(name if "." in name else f"{name}.{kind}")
            stage, reason = said if isinstance(said, list) else ("open", said)
            yield pytest.param(path, "read" if kind == "pt" else stage, reason, id=path.name)


def open_and_read(path: Path, stage: str) -> None:
    with ztensor.open(path) as reader:
        assert stage == "read"
        reader.read(next(iter(reader)))


@pytest.mark.parametrize(("path", "stage", "reason"), list(hostile()))
def test_a_hostile_file_is_refused_for_its_reason(
    path: Path, stage: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with traced() as memory:
        with pytest.raises((FormatError, UnsupportedError, LimitError)) as caught:
            open_and_read(path, stage)
        assert memory()[1] < 64 << 20
    others = {Reason.OUT_OF_BOUNDS} if path.suffix == ".h5" else set()
    assert caught.value.reason in {reason, *others}
    assert caught.value.file == str(path)
    assert capfd.readouterr().out == ""
    if path.suffix in {".npz", ".npy"}:
        exercise(path.read_bytes())


@pytest.mark.parametrize("maker", [make_npz, make_onnx, make_safetensors])
def test_the_corpus_is_what_its_script_writes(maker: Any) -> None:
    made = maker.files()
    assert {path: (CORPUS / path).read_bytes() for path in made} == made
    format_ = maker.__name__.rpartition("_")[2]
    there = {path.relative_to(CORPUS) for path in (CORPUS / "reject" / format_).iterdir()}
    assert there <= set(made)


@pytest.mark.parametrize("format_", FORMATS)
def test_damage_gives_a_right_result_or_an_error_of_ours(format_: str) -> None:
    """`exercise` raises on any other; some files must still open, or nothing was looked at."""
    paths = sorted((CORPUS / "accept" / format_).rglob("*"))
    good = [path.read_bytes() for path in paths if path.is_file() and path.suffix != ".json"]
    random, opened, tries = Random(format_), 0, amount(240, full=3000)
    for index in range(tries):
        data = good[index % len(good)]
        changes = [random_damage(random, len(data)) for _ in range(1 + index % 3)]
        opened += exercise(damaged(data, changes), limits=LIMITS).opened
    assert tries // 100 < opened < tries
