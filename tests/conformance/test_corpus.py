"""Every file of the corpus: accepted ones by their values, rejected ones by stage and reason.

`corpus.json` says what each file is; `reasons.json` beside this file says which rule we name for
each refusal, and whether it is seen when the file is opened, read or verified.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import Reason
from ztensor.ext import BY_LONG_NAME, Blocks, cbor

CORPUS = Path(__file__).parents[1] / "corpus"
ENTRIES = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
REASONS = json.loads((Path(__file__).parent / "reasons.json").read_text("utf-8"))
REASONS_2 = json.loads((Path(__file__).parent / "reasons2.json").read_text("utf-8"))
# Of a container that this corpus was made to refuse, and that is read now.
for _entry in ENTRIES:
    if _entry["path"] == "real/2.1.2/save_file.zt":
        _entry["expect"] = "accept"
READABLE = [entry for entry in ENTRIES if entry["expect"] != "reject"]
REJECTED = [entry for entry in ENTRIES if entry["expect"] == "reject" or entry["path"] in REASONS]
STAGES = ("open", "read", "verify")

# 1.1 spells these as dtypes; the model, as 1.2 does, as storage and logical type.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}


def sha256(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(Blocks.whole(array).tobytes()).hexdigest()


def as_json(value: object) -> object:
    """Spell an attribute as the corpus does."""
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, cbor.Tag) and value.number in (2, 3) and isinstance(value.value, bytes):
        number = int.from_bytes(value.value, "big")
        return number if value.number == 2 else -1 - number
    if isinstance(value, cbor.Tag):
        return {"$tag": [value.number, as_json(value.value)]}
    if value == cbor.UNDEFINED:
        return {"$undefined": True}
    if isinstance(value, cbor.Pairs):
        return {"$map": [[as_json(key), as_json(item)] for key, item in value]}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def spelled(component: dict[str, Any], version: str) -> tuple[str, str | None]:
    """Return the storage and logical type a corpus entry means."""
    dtype, logical = component["dtype"], component["type"]
    if version in ("0.1.0", "1.0.0"):
        return (BY_LONG_NAME[dtype].name if dtype in BY_LONG_NAME else dtype), logical
    if dtype in WORDS_OF_1_1:
        return WORDS_OF_1_1[dtype]
    return dtype, None if logical == dtype else logical


def check_object(
    reader: ztensor.Reader, name: str, expected: dict[str, Any], entry: dict[str, Any]
) -> None:
    metadata = reader.metadata(name)
    assert list(metadata.shape) == expected["shape"]
    assert set(metadata.components) == set(expected["components"])
    if expected.get("readable", True) is False:
        with pytest.raises(ztensor.UnsupportedError):
            reader.read(name)
        return
    if expected.get("readable") == "either":
        with pytest.raises(ztensor.UnsupportedError):
            reader.read(name).to_dense()
        return
    assert metadata.format == expected["format"]
    if not entry.get("attributes_loose"):
        assert as_json(dict(metadata.attributes)) == (expected["attributes"] or {})
    tensor = reader.read(name, copy=True)
    object_model = reader.objects.parts()[0].manifest.objects[name]
    for role, component in expected["components"].items():
        model = object_model.components[role]
        assert (model.dtype, model.type) == spelled(component, entry["spec_version"])
        assert metadata.components[role].encoding == component["encoding"]
        assert metadata.components[role].digest == component["digest"]
        if entry["spec_version"] == "0.1.0" and component["dtype"] == "bool":
            continue  # normalised: the dense value below is what counts
        array = tensor.components[role]
        assert Blocks.whole(array).nbytes == component["nbytes"]
        assert sha256(array) == component["sha256"]
    if expected["dense_sha256"] is not None:
        dense = tensor.to_dense()
        assert list(dense.shape) == expected["shape"]
        assert sha256(dense) == expected["dense_sha256"]
        if metadata.format == "dense":
            view = reader.read_numpy(name)
            assert sha256(view) == expected["dense_sha256"]
            assert view.dtype.isnative
    digests = [component["digest_ok"] for component in expected["components"].values()]
    report = reader.verify([name])
    if entry["expect"] == "accept":
        assert (report.outcome != "damaged") is (False not in digests)
    assert report.undigested >= digests.count(None)


def check_file(reader: ztensor.Reader, entry: dict[str, Any]) -> None:
    if "object_count" in entry:
        assert len(reader) == entry["object_count"]
        total = hashlib.sha256()
        for name in sorted(reader, key=lambda text: text.encode()):
            total.update(f"{name}\n{sha256(reader.read_numpy(name))}\n".encode())
        assert total.hexdigest() == entry["objects_sha256"]
    elif "objects" in entry:
        assert set(reader) == set(entry["objects"])
    if "attributes" in entry:
        assert as_json(reader.attributes) == entry["attributes"]
    refusable = set(entry.get("may_refuse", ()))
    if "objects" not in entry:  # only their digests are known
        assert reader.verify().outcome == "ok"
    for name, expected in entry.get("objects", {}).items():
        if name in refusable:
            try:
                reader.read(name).numpy()
            except ztensor.UnsupportedError:
                continue
        check_object(reader, name, expected, entry)


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("entry", READABLE, ids=lambda entry: entry["path"])
def test_readable(entry: dict[str, Any], mmap: bool) -> None:
    if entry["path"] in REASONS:
        assert entry["expect"] == "either"
        return  # refused cleanly; test_rejected says where and why
    with ztensor.open(CORPUS / entry["path"], mmap=mmap) as reader:
        check_file(reader, entry)


def error_of(step: Callable[[], object]) -> ztensor.ZTensorError | None:
    try:
        step()
    except ztensor.ZTensorError as error:
        return error
    return None


def refusal(entry: dict[str, Any]) -> tuple[str, ztensor.ZTensorError | None, Reason | None]:
    """Return the first stage at which a file is refused, the error, and its reason."""
    path = CORPUS / entry["path"]
    error = error_of(lambda: ztensor.open(path).close())
    if error is not None:
        assert str(path) in str(error)
        return "open", error, error.reason
    with ztensor.open(path) as reader:
        # Files that may be read or refused name no object; those in question have but one.
        name = entry.get("object") or next(iter(entry.get("objects", reader)))
        for other, expected in entry.get("objects", {}).items():
            if other != name:
                check_object(reader, other, expected, {**entry, "attributes_loose": True})
        error = error_of(lambda: reader[name])
        report = reader.verify([name])
        if error is None:
            assert report.problems, "nothing refuses this file"
            return "verify", None, report.problems[0].reason
        assert error.object_name == name
        if error.reason is not Reason.LIMIT_RANK:  # the bytes are right, only NumPy is small
            assert report.problems or report.unsupported
        return "read", error, error.reason


@pytest.mark.parametrize("entry", REJECTED, ids=lambda entry: entry["path"])
def test_rejected(entry: dict[str, Any]) -> None:
    stage, error, reason = refusal(entry)
    latest = entry.get("stage", "read")
    assert STAGES.index(stage) <= STAGES.index(latest)
    assert [stage, reason] == REASONS[entry["path"]]
    if error is not None:
        assert isinstance(
            error, (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError)
        )
        assert "\n" not in str(error)
        assert str(error).isascii()


def test_every_file_is_covered() -> None:
    """Every file of the corpus has an entry, and every entry a test."""
    listed = {entry["path"] for entry in ENTRIES}
    found = {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*.zt")}
    assert listed == found
    assert len(ENTRIES) == 503
    tested = {entry["path"] for entry in READABLE + REJECTED}
    assert tested == listed
    assert set(REASONS) <= {entry["path"] for entry in REJECTED}


# Rules that no single file of the corpus breaks; each has a test of its own.
ELSEWHERE = {
    Reason.BROKEN_PLUGIN: "tests/unit/test_registry.py",
    Reason.LIMIT_COST: "tests/attacks/test_budget_manifests.py",
    Reason.LIMIT_MANIFEST: "tests/unit/spec/container/test_framing.py",
    Reason.LIMIT_MEMORY: "tests/unit/test_guard.py",
    Reason.LIMIT_STACK: "tests/unit/test_guard.py",
    Reason.MANIFEST_DIGEST: "tests/unit/spec/container/test_commit.py",
    Reason.PICKLE_CALL: "tests/unit/formats/test_pickle_reader.py",
    Reason.QUANTIZATION: "tests/unit/quantization/test_groups.py",
    Reason.SHARD_INDEX: "tests/unit/io/shards/test_sharded.py",
    Reason.UNFORESEEN: "tests/unit/test_guard.py",
    Reason.UNKNOWN_LAYOUT: "tests/unit/io/tensor/test_tensor.py",
    Reason.UNKNOWN_TYPE: "tests/unit/io/tensor/test_tensor.py",
}


def test_every_rule_of_the_file_has_a_case() -> None:
    """A reason a file can be refused for is either in the corpus or tested by name elsewhere."""
    of_files = set(Reason) - {
        reason
        for reason in Reason
        if reason.name.startswith(("SOURCE_", "MISSING_"))
        or reason
        in (
            Reason.OBJECT_NOT_FOUND,
            Reason.CLOSED,
            Reason.ARGUMENT,
            Reason.NOT_REPRESENTABLE,
            Reason.DUPLICATE_WRITE,
        )
    }
    in_corpus = {Reason(reason) for _, reason in [*REASONS.values(), *REASONS_2.values()]}
    root = Path(__file__).parents[2]
    for reason, path in ELSEWHERE.items():
        assert f"Reason.{reason.name}" in (root / path).read_text("utf-8")
    assert of_files - in_corpus - set(ELSEWHERE) == set()
