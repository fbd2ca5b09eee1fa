"""The content digest of 2.x: equal to the corpus for every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentValueError, NotRepresentableError
from ztensor.numpy import save
from ztensor.testing.builder_2 import File2, dense

CORPUS = Path(__file__).parents[3] / "corpus2"
ENTRIES = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
WITH_DIGEST = [entry for entry in ENTRIES if "content_digest" in entry]
WITHOUT = [
    entry
    for entry in ENTRIES
    if "content_digest" not in entry
    and any(
        component["digest"] is None
        for found in entry.get("objects", {}).values()
        for component in found["components"].values()
    )
    and entry["expect"] == "accept"
]


@pytest.mark.parametrize("entry", WITH_DIGEST, ids=lambda entry: f"2.x/{entry['path']}")
def test_that_of_the_corpus(entry: dict[str, Any]) -> None:
    assert entry["content_digest"].keys() == {"xxh3", "sha256"}
    with ztensor.open(CORPUS / entry["path"]) as reader:
        for algorithm, text in entry["content_digest"].items():
            assert ztensor.insight.content_digest(reader, algorithm) == text


@pytest.mark.parametrize("entry", WITHOUT, ids=lambda entry: f"2.x/{entry['path']}")
def test_a_part_without_digest_is_named(entry: dict[str, Any]) -> None:
    path = CORPUS / entry["path"]
    with pytest.raises(NotRepresentableError) as caught:
        ztensor.insight.content_digest(path)
    error = caught.value
    assert error.file == str(path)
    component = entry["objects"][error.object_name]["components"][error.component]
    assert component["digest"] is None


@pytest.mark.parametrize("checksum", ["crc32c", "sha256", None])
def test_other_versions_have_none(checksum: str | None) -> None:
    file = save({"w": np.ones(3)}, checksum=checksum)
    with pytest.raises(NotRepresentableError) as caught:
        ztensor.insight.content_digest(file)
    assert (caught.value.object_name, caught.value.component) == ("w", "data")
    assert "--to-version 2.1" in str(caught.value)


@pytest.mark.parametrize("algorithm", ["crc32c", "", "XXH3"])
def test_other_algorithms(algorithm: str) -> None:
    with pytest.raises(ArgumentValueError):
        ztensor.insight.content_digest(File2().seal({"objects": {}}), algorithm)


def test_places_shards_and_compression_have_no_part_in_it() -> None:
    """The same objects elsewhere, with another digest, with empty attributes."""
    digests = []
    for alignment, digest in ((4096, "xxh3"), (65536, "xxh3"), (4096, "sha256")):
        file = File2(alignment)
        part = file.part(np.arange(6.0), digest=digest)
        digests.append(
            ztensor.insight.content_digest(file.seal({"objects": {"w": dense(part, [6])}}))
        )
    assert digests[0] == digests[1] != digests[2]
    file = File2()
    noted = dense(file.part(np.arange(6.0)), [6], attributes={})
    assert ztensor.insight.content_digest(file.seal({"objects": {"w": noted}})) not in digests
