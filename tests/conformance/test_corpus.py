"""Every file of the corpora: accepted ones by their values, rejected ones by stage and reason.

`corpus.json` of each corpus says what a file is; `reasons.json` (1.x), `reasons2.json` (2.x) and
`reasons_planes.json` say which rule we name for each refusal, and whether it is seen when the file
is opened, read or verified.
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
from ztensor.spec.container.v2.words import GGUF_BLOCKS, SPARSE

HERE = Path(__file__).parent
CORPUS, CORPUS_2 = HERE.parent / "corpus", HERE.parent / "corpus2"
PLANES, TYPES = HERE.parent / "corpus_planes", HERE.parent / "corpus_types"
REASONS: dict[Path, dict[str, list[str]]] = {
    CORPUS: json.loads((HERE / "reasons.json").read_text("utf-8")),
    CORPUS_2: json.loads((HERE / "reasons2.json").read_text("utf-8")),
    PLANES: json.loads((HERE / "reasons_planes.json").read_text("utf-8")),
    TYPES: json.loads((HERE / "reasons_types.json").read_text("utf-8")),
}
ENTRIES: dict[Path, list[dict[str, Any]]] = {
    corpus: json.loads((corpus / "corpus.json").read_text("utf-8"))["files"] for corpus in REASONS
}
# Of a container that this corpus was made to refuse, and that is read now.
for _entry in ENTRIES[CORPUS]:
    if _entry["path"] == "real/2.1.2/save_file.zt":
        _entry["expect"] = "accept"
READABLE = [entry for entry in ENTRIES[CORPUS] if entry["expect"] != "reject"]
Case = tuple[Path, dict[str, Any]]
CASES: list[Case] = [(corpus, entry) for corpus, every in ENTRIES.items() for entry in every]
ACCEPTED = [case for case in CASES if case[1]["expect"] != "reject"]
REJECTED = [
    (corpus, entry)
    for corpus, entry in CASES
    if entry["expect"] == "reject" or entry["path"] in REASONS[corpus]
]
STAGES = ("open", "read", "verify")

# 1.1 spells these as dtypes; the model, as 1.2 does, as storage and logical type.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}
# Layouts that are ours under another name in 2.x; sizes of blocks are then no attributes.
OURS = {word: own for word, (own, _) in SPARSE.items()}
OURS |= {f"gguf.{name}/1": f"gguf.{name}" for name in GGUF_BLOCKS}


def case_id(case: Case) -> str:
    prefixes = {CORPUS_2: "2.x/", PLANES: "planes/", TYPES: "types/"}
    return prefixes.get(case[0], "") + str(case[1]["path"])


def sha256(*pieces: Any) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def elements(array: np.ndarray[Any, Any], entry: dict[str, Any]) -> bytes:
    """Return an array's elements as its corpus has them: 4-bit ones of 2.x have a byte each."""
    if array.dtype.name == "float4_e2m1fn" and entry["spec_version"] == "2":
        return array.view(np.uint8).tobytes()
    return Blocks.whole(array).tobytes()


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
    if version == "2":
        return ("bool", None) if logical == "bool" else (dtype, logical)
    if version in ("0.1.0", "1.0.0"):
        return (BY_LONG_NAME[dtype].name if dtype in BY_LONG_NAME else dtype), logical
    if dtype in WORDS_OF_1_1:
        return WORDS_OF_1_1[dtype]
    return dtype, None if logical == dtype else logical


def check_component(
    reader: ztensor.Reader, name: str, role: str, expected: dict[str, Any], entry: dict[str, Any]
) -> None:
    version = entry["spec_version"]
    found = reader.metadata(name).components[role]
    model = reader.objects.part(name).object(name).components[role]
    assert (model.dtype, model.type) == spelled(expected, version)
    assert (found.encoding, found.digest) == (expected["encoding"], expected["digest"])
    if version == "2":
        wanted = expected["sha256"] or expected.get("packed_sha256")
        if wanted is not None and expected["digest_ok"] is not False:
            assert sha256(*reader.decoded_chunks(name, role)) == wanted
    elif version != "0.1.0" or expected["dtype"] != "bool":  # normalised: its dense value counts
        stored = elements(reader.read(name, copy=True).components[role], entry)
        assert (len(stored), sha256(stored)) == (expected["nbytes"], expected["sha256"])


def check_dense(
    reader: ztensor.Reader, name: str, expected: dict[str, Any], entry: dict[str, Any]
) -> None:
    dense = reader.read(name).to_dense()
    assert list(dense.shape) == expected["shape"]
    assert sha256(elements(dense, entry)) == expected["dense_sha256"]
    if reader.metadata(name).format == "dense":
        view = reader.read_numpy(name)
        assert sha256(elements(view, entry)) == expected["dense_sha256"]
        assert view.dtype.isnative
        if view.ndim and view.shape[0]:
            part: Any = reader.get_slice(name)[-1:]
            assert elements(part, entry) == elements(dense[-1:], entry)


def check_object(
    reader: ztensor.Reader, name: str, expected: dict[str, Any], entry: dict[str, Any]
) -> None:
    metadata, readable = reader.metadata(name), expected.get("readable", True)
    assert list(metadata.shape) == expected["shape"]
    assert set(metadata.components) == set(expected["components"])
    if readable is not True:
        error = error_of(lambda: reader.read(name).to_dense())
        if readable is False or error is not None:
            assert isinstance(error, (ztensor.UnsupportedError, ztensor.LimitError))
            return
    assert metadata.format == OURS.get(expected["format"], expected["format"])
    if not entry.get("attributes_loose"):
        attributes = dict(expected["attributes"] or {})
        if metadata.format.startswith("gguf."):
            del attributes["elems_per_block"], attributes["block_bytes"]
        assert as_json(dict(metadata.attributes)) == attributes
    for role, component in expected["components"].items():
        check_component(reader, name, role, component, entry)
    digests = [component["digest_ok"] for component in expected["components"].values()]
    if expected["dense_sha256"] is not None and False not in digests:
        check_dense(reader, name, expected, entry)
    report = reader.verify([name])
    if entry["expect"] == "accept":
        assert (report.outcome != "damaged") is (False not in digests)
    assert report.undigested >= digests.count(None)


def check_file(reader: ztensor.Reader, entry: dict[str, Any]) -> None:
    objects = entry.get("objects", {})
    if "object_count" in entry:
        assert len(reader) == entry["object_count"]
        total = hashlib.sha256()
        for name in sorted(reader, key=str.encode):
            total.update(f"{name}\n{sha256(elements(reader.read_numpy(name), entry))}\n".encode())
        assert total.hexdigest() == entry["objects_sha256"]
    elif "objects" in entry:
        assert set(reader) == set(objects)
    if "attributes" in entry:
        assert as_json(reader.attributes) == (entry["attributes"] or {})
    for name, expected in objects.items():
        if name in entry.get("may_refuse", ()):
            error = error_of(lambda name=name: reader.read(name).numpy())  # type: ignore[misc]
            if isinstance(error, ztensor.UnsupportedError):
                continue
        check_object(reader, name, expected, entry)
    digests = {c["digest_ok"] for one in objects.values() for c in one["components"].values()}
    if entry["expect"] == "accept" and False not in digests:
        assert reader.verify(deep=True).outcome != "damaged"


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("case", ACCEPTED, ids=case_id)
def test_readable(case: Case, mmap: bool) -> None:
    corpus, entry = case
    if entry["path"] in REASONS[corpus]:
        assert entry["expect"] == "either"
        return  # refused cleanly; test_rejected says where and why
    with ztensor.open(corpus / entry["path"], mmap=mmap) as reader:
        check_file(reader, entry)


def error_of(step: Callable[[], object]) -> ztensor.ZTensorError | None:
    try:
        step()
    except ztensor.ZTensorError as error:
        return error
    return None


def refusal(case: Case) -> tuple[str, ztensor.ZTensorError | None, Reason | None]:
    """Return the first stage at which a file is refused, the error, and its reason."""
    corpus, entry = case
    path = corpus / entry["path"]
    error = error_of(lambda: ztensor.open(path).close())
    if error is not None:
        assert str(path.parent) in str(error)
        return "open", error, error.reason
    with ztensor.open(path) as reader:
        # Files that may be read or refused name no object; those in question have but one.
        name = entry.get("object") or next(iter(reader))
        for other, expected in entry.get("objects", {}).items():
            if other != name:
                check_object(reader, other, expected, {**entry, "attributes_loose": True})
        is_dense = reader.metadata(name).format == "dense"
        error = error_of(lambda: reader[name] if is_dense else reader.read(name).to_dense())
        report = reader.verify([name], deep=True)
        if error is None:
            assert report.problems, "nothing refuses this file"
            return "verify", None, report.problems[0].reason
        assert error.object_name == name
        if error.reason is not Reason.LIMIT_RANK:  # the bytes are right, only NumPy is small
            assert report.problems or report.unsupported
        return "read", error, error.reason


@pytest.mark.parametrize("case", REJECTED, ids=case_id)
def test_rejected(case: Case) -> None:
    corpus, entry = case
    stage, error, reason = refusal(case)
    assert STAGES.index(stage) <= STAGES.index(entry.get("stage", "read"))
    assert [stage, reason] == REASONS[corpus][entry["path"]]
    if error is not None:
        assert isinstance(
            error, (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError)
        )
        assert "\n" not in str(error)
        assert str(error).isascii()


@pytest.mark.parametrize(
    ("corpus", "count"),
    [(CORPUS, 503), (CORPUS_2, 353), (PLANES, 85), (TYPES, 56)],
    ids=["1.x", "2.x", "planes", "types"],
)
def test_every_file_is_covered(corpus: Path, count: int) -> None:
    """Every file of the corpus has an entry, and every entry a test."""
    listed = {entry["path"] for entry in ENTRIES[corpus]}
    assert listed == {path.relative_to(corpus).as_posix() for path in corpus.rglob("*.zt")}
    assert len(ENTRIES[corpus]) == count
    rejected = {entry["path"] for place, entry in REJECTED if place == corpus}
    assert {entry["path"] for place, entry in ACCEPTED if place == corpus} | rejected == listed
    assert set(REASONS[corpus]) == rejected


# Rules that no single file of the corpus breaks; each has a test of its own.
ELSEWHERE = {
    Reason.BROKEN_PLUGIN: "tests/unit/test_registry.py",
    Reason.LIMIT_COST: "tests/attacks/test_budget_manifests.py",
    Reason.LIMIT_MANIFEST: "tests/unit/spec/container/test_framing.py",
    Reason.LIMIT_MEMORY: "tests/unit/test_guard.py",
    Reason.LIMIT_STACK: "tests/unit/test_guard.py",
    Reason.MANIFEST_DIGEST: "tests/unit/spec/container/test_framing.py",
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
    in_corpus = {Reason(reason) for every in REASONS.values() for _, reason in every.values()}
    root = Path(__file__).parents[2]
    for reason, path in ELSEWHERE.items():
        assert f"Reason.{reason.name}" in (root / path).read_text("utf-8")
    assert of_files - in_corpus - set(ELSEWHERE) == set()
