from __future__ import annotations

from typing import Any

import cbor2
import pytest

from tests.refusals import refused
from ztensor.errors import ContainerError, LimitError, ManifestError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import EMITTERS
from ztensor.spec.container.framing import Container, Frame
from ztensor.spec.container.v1_0 import parse_manifest
from ztensor.spec.model.manifest import Component, Manifest, TensorObject

END = 4096


def parse(manifest: bytes, limits: Limits = DEFAULT_LIMITS) -> Manifest:
    frame = Frame(Container.V1_0, END, len(manifest), END + len(manifest) + 8)
    return parse_manifest(manifest, frame, Budget(limits, frame.file_size))


def root(**tensors: object) -> dict[str, Any]:
    """Return what releases 1.0.0 and 1.0.1 wrote around their tensors."""
    return {"version": "1.0", "generator": "zt", "attributes": {}, "tensors": tensors}


def tensor(**changes: Any) -> dict[str, Any]:
    return {
        "dtype": "float32",
        "shape": [2],
        "format": "dense",
        "components": {"data": {"offset": 64, "length": 8}},
        **changes,
    }


def test_a_dense_tensor() -> None:
    manifest = parse(cbor2.dumps(root(w=tensor())))
    assert manifest.version == "1.0"
    assert manifest.extra == {"generator": "zt"}
    assert manifest.objects == {
        "w": TensorObject((2,), "dense", {"data": Component("f32", 64, 8)}),
    }


def test_index_components_are_u64_and_have_no_type_of_their_own() -> None:
    parts = {
        role: {"offset": 64, "length": 8, "encoding": "zstd", "digest": "crc32c:00000000"}
        for role in ("values", "indices", "indptr", "coords")
    }
    made = tensor(dtype="int8", format="sparse_csr", components=parts, attributes={"a": 1})
    found = parse(cbor2.dumps(root(s=made))).objects["s"]
    assert found.attributes == {"a": 1}
    assert {role: part.dtype for role, part in found.components.items()} == {
        "values": "i8", "indices": "u64", "indptr": "u64", "coords": "u64",
    }  # fmt: skip
    assert found.components["values"] == Component(
        "i8", 64, 8, encoding="zstd", digest="crc32c:00000000"
    )


def test_an_unknown_word_is_kept() -> None:
    found = parse(cbor2.dumps(root(w=tensor(dtype="odd"))))
    assert found.objects["w"].components["data"].dtype == "odd"


@pytest.mark.parametrize(
    "manifest",
    [
        b"\xff",
        b"\x00\x00",
        cbor2.dumps([]),
        cbor2.dumps({}),
        cbor2.dumps({"version": "1.2.0", "objects": {}}),
        cbor2.dumps({"version": "1.0", "tensors": []}),
        b"\x81" * 200,
    ],
    ids=["malformed", "trailing", "array", "empty", "1.2", "tensors", "deep"],
)
def test_what_only_looks_like_it_is_a_torn_file(manifest: bytes) -> None:
    """The container is known by what is missing: a footer."""
    with refused(ContainerError, Reason.FOOTER_MAGIC):
        parse(manifest)


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        ({**root(), "version": 1}, ("version",), Reason.FIELD_TYPE),
        ({**root(), "attributes": 1}, ("attributes",), Reason.FIELD_TYPE),
        (root(w=[]), ("tensors", "w"), Reason.FIELD_TYPE),
        (root(w=tensor(dtype=None)), ("tensors", "w", "dtype"), Reason.FIELD_TYPE),
        (root(w=tensor(shape=None)), ("tensors", "w", "shape"), Reason.FIELD_TYPE),
        (root(w=tensor(format=None)), ("tensors", "w", "format"), Reason.FIELD_TYPE),
        (root(w=tensor(components=None)), ("tensors", "w", "components"), Reason.FIELD_TYPE),
        (
            root(w=tensor(components={"data": None})),
            ("tensors", "w", "components", "data"),
            Reason.FIELD_TYPE,
        ),
        (
            root(w=tensor(components={"data": {"offset": 64}})),
            ("tensors", "w", "components", "data", "length"),
            Reason.FIELD_MISSING,
        ),
        (
            root(w=tensor(components={"data": {"offset": 1, "length": 8}})),
            ("tensors", "w", "components", "data", "offset"),
            Reason.OFFSET_ALIGNMENT,
        ),
        (
            root(w=tensor(components={"data": {"offset": END, "length": 8}})),
            ("tensors", "w", "components", "data", "offset"),
            Reason.OUT_OF_BOUNDS,
        ),
        (
            root(w=tensor(components={"data": {"offset": 64, "length": 8, "digest": "x"}})),
            ("tensors", "w", "components", "data", "digest"),
            Reason.DIGEST_MALFORMED,
        ),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, tuple) else None,
)
def test_a_broken_rule_is_named_with_its_place(
    fields: dict[str, Any], path: tuple[str, ...], reason: Reason
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(cbor2.dumps(fields))
    (problem,) = caught.value.problems
    assert (problem.reason, problem.path) == (reason, path)
    assert caught.value.object_name == ("w" if "w" in path else None)


def test_one_bad_tensor_does_not_hide_another() -> None:
    with pytest.raises(ManifestError) as caught:
        parse(cbor2.dumps(root(a=tensor(shape=1), b=tensor(), c=tensor(format=1))))
    assert [problem.object_name for problem in caught.value.problems] == ["a", "c"]


def test_it_is_only_read() -> None:
    assert set(EMITTERS) == {"0.1.0", "1.1.0", "1.2.0", "2.1"}


def test_what_costs_too_much_is_refused_for_that_where_it_names_tensors() -> None:
    """Other bytes may be of a torn file, which is said; so is what nests too deep."""
    limits = Limits(cost_floor=20_000, cost_factor=1, depth=20)
    long = [1.5] * 5000
    with refused(LimitError, Reason.LIMIT_COST):
        parse(cbor2.dumps({**root(w=tensor()), "more": long}), limits)
    deep: object = 1
    for _ in range(30):
        deep = [deep]
    for fields in ({"more": long}, {**root(w=tensor()), "more": deep}):
        with refused(ContainerError, Reason.FOOTER_MAGIC):
            parse(cbor2.dumps(fields), limits)
