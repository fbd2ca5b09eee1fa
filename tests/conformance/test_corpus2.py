"""Every file of the corpus of 2.x: accepted ones by their values, refused ones by stage and reason.

`corpus.json` says what each file is; `reasons2.json` beside this file says which rule we name for
each refusal, and whether it is seen when the file is opened, read or verified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.conformance.test_corpus import STAGES, as_json, error_of
from ztensor.errors import Reason
from ztensor.ext import Blocks
from ztensor.spec.container.v2.words import GGUF_BLOCKS, SPARSE

CORPUS = Path(__file__).parents[1] / "corpus2"
ENTRIES = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
REASONS = json.loads((Path(__file__).parent / "reasons2.json").read_text("utf-8"))
READABLE = [entry for entry in ENTRIES if entry["expect"] != "reject"]
REJECTED = [entry for entry in ENTRIES if entry["path"] in REASONS or entry["expect"] == "reject"]

# Layouts that are ours under another name; sizes of blocks are then no attributes.
OURS = {word: own for word, (own, _) in SPARSE.items()}
OURS |= {f"gguf.{name}/1": f"gguf.{name}" for name in GGUF_BLOCKS}


def ids(entry: dict[str, Any]) -> str:
    return f"2.x/{entry['path']}"


def sha256(pieces: Iterable[Any]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def logical(array: np.ndarray[Any, Any]) -> bytes:
    """Return an array's elements as the corpus has them: 4-bit elements have a byte each."""
    if array.dtype.name == "float4_e2m1fn":
        return array.view(np.uint8).tobytes()
    return Blocks.whole(array).tobytes()


def spelled(component: dict[str, Any]) -> tuple[str, str | None]:
    dtype, logical_type = component["dtype"], component["type"]
    return ("bool", None) if logical_type == "bool" else (dtype, logical_type)


def check_object(reader: ztensor.Reader, name: str, expected: dict[str, Any]) -> None:
    metadata = reader.metadata(name)
    assert list(metadata.shape) == expected["shape"]
    assert metadata.format == OURS.get(expected["format"], expected["format"])
    attributes = dict(expected["attributes"] or {})
    if metadata.format.startswith("gguf."):
        attributes = {
            k: v for k, v in attributes.items() if k not in ("elems_per_block", "block_bytes")
        }
    assert as_json(dict(metadata.attributes)) == attributes
    assert set(metadata.components) == set(expected["components"])
    readable = expected.get("readable", True)
    if readable is False:
        error = error_of(lambda: reader.read(name))
        assert isinstance(error, ztensor.UnsupportedError)
        return
    object_model = reader.objects.part(name).object(name)
    for role, component in expected["components"].items():
        found = metadata.components[role]
        model = object_model.components[role]
        assert (model.dtype, model.type) == spelled(component)
        assert found.digest == component["digest"]
        assert found.encoding == component["encoding"]
        wanted = component["sha256"] or component.get("packed_sha256")
        if wanted is not None and component["digest_ok"] is not False:
            assert sha256(reader.decoded_chunks(name, role)) == wanted
    digests = [component["digest_ok"] for component in expected["components"].values()]
    if expected["dense_sha256"] is not None and False not in digests:
        try:
            dense = reader.read(name).to_dense()
        except (ztensor.UnsupportedError, ztensor.LimitError):
            assert readable == "either"
            return
        assert list(dense.shape) == expected["shape"]
        assert sha256([logical(dense)]) == expected["dense_sha256"]
        if metadata.format == "dense":
            view = reader.read_numpy(name)
            assert sha256([logical(view)]) == expected["dense_sha256"]
            assert view.dtype.isnative
            if view.ndim and view.shape[0]:
                part = reader.get_slice(name)[-1:]
                assert sha256([logical(part)]) == sha256([logical(dense[-1:])])
    report = reader.verify([name])
    assert (report.outcome != "damaged") is (False not in digests)
    assert report.undigested >= digests.count(None)


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("entry", READABLE, ids=ids)
def test_readable(entry: dict[str, Any], mmap: bool) -> None:
    if entry["path"] in REASONS:
        assert entry["expect"] == "either"
        return  # refused cleanly; test_rejected says where and why
    with ztensor.open(CORPUS / entry["path"], mmap=mmap) as reader:
        assert reader.version == "2"
        objects = entry.get("objects", {})
        if "object_count" in entry:
            assert len(reader) == entry["object_count"]
            total = hashlib.sha256()
            for name in sorted(reader, key=str.encode):
                total.update(f"{name}\n{sha256([logical(reader[name])])}\n".encode())
            assert total.hexdigest() == entry["objects_sha256"]
        elif entry["expect"] == "accept":
            assert set(reader) == set(objects)
        if "attributes" in entry:
            assert as_json(reader.attributes) == (entry["attributes"] or {})
        for name, expected in objects.items():
            check_object(reader, name, expected)
        if entry["expect"] == "accept" and not any(
            component["digest_ok"] is False
            for expected in objects.values()
            for component in expected["components"].values()
        ):
            assert reader.verify(deep=True).outcome != "damaged"


def refusal(entry: dict[str, Any]) -> tuple[str, Reason | None]:
    """Return the first stage at which a file is refused, and the reason."""
    path = CORPUS / entry["path"]
    error = error_of(lambda: ztensor.open(path).close())
    if error is not None:
        assert str(path.parent) in str(error)
        assert isinstance(
            error, (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError)
        )
        assert "\n" not in str(error)
        assert str(error).isascii()
        return "open", error.reason
    with ztensor.open(path) as reader:
        name = entry.get("object") or next(iter(reader))
        for other, expected in entry.get("objects", {}).items():
            if other != name:
                check_object(reader, other, expected)
        error = error_of(lambda: reader.read(name).to_dense())
        report = reader.verify([name], deep=True)
        if error is None:
            assert report.problems, "nothing refuses this file"
            return "verify", report.problems[0].reason
        assert report.problems or report.unsupported
        assert error.object_name == name
        return "read", error.reason


@pytest.mark.parametrize("entry", REJECTED, ids=ids)
def test_rejected(entry: dict[str, Any]) -> None:
    stage, reason = refusal(entry)
    assert STAGES.index(stage) <= STAGES.index(entry.get("stage", "read"))
    assert [stage, reason] == REASONS.get(entry["path"])


def test_every_file_is_covered() -> None:
    """Every file of the corpus has an entry, and every entry a test."""
    listed = {entry["path"] for entry in ENTRIES}
    found = {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*.zt")}
    assert listed == found
    assert len(ENTRIES) == 353
    assert {entry["path"] for entry in READABLE + REJECTED} == listed
    assert set(REASONS) == {entry["path"] for entry in REJECTED}
