"""Files of 2.x by public names, beyond the corpus: content, shared blobs, caps, messages."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import LimitError, ManifestError, Problem, Reason
from ztensor.ext import cbor
from ztensor.limits import Limits
from ztensor.spec.container.v2.words import GGUF_BLOCKS
from ztensor.testing.builder_2 import File2, dense


def reason_of(data: bytes, **options: Any) -> Reason | None:
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(data, **options)
    return caught.value.reason


def test_a_bool_is_0_or_1_in_every_way_to_read() -> None:
    file = File2()
    part = file.part(np.array([0, 1, 2], np.uint8), type="bool")
    good = file.part(np.array([True, False]))
    data = file.seal({"objects": {"w": dense(part, [3]), "good": dense(good, [2])}})
    for mmap in (True, False):
        with ztensor.open(data, mmap=mmap) as reader:
            assert reader["good"].tolist() == [True, False]
            assert reader["good"].dtype == np.bool_
            ways: list[Callable[[], object]] = [
                functools.partial(reader.read_numpy, "w"),
                functools.partial(reader.read_numpy, "w", copy=True),
                functools.partial(reader.get_slice("w").__getitem__, slice(1, None)),
                functools.partial(reader.read_into, "w", np.zeros(3, np.bool_)),
            ]
            for read in ways:
                with refused(ztensor.FormatError, Reason.BOOL_VALUE):
                    read()
            assert [problem.reason for problem in reader.verify().problems] == [Reason.BOOL_VALUE]


def test_the_cap_on_depth_is_the_smaller_of_text_and_limits() -> None:
    def nested(levels: int) -> bytes:
        value: object = 1
        for _ in range(levels):
            value = [value]
        file = File2()
        return file.seal({"objects": {}, "attributes": {"x": value}})

    ztensor.open(nested(30)).close()
    assert reason_of(nested(31)) is Reason.CBOR_FORM
    for depth, reason in (
        (31, Reason.LIMIT_DEPTH),
        (32, Reason.LIMIT_DEPTH),
        (33, Reason.CBOR_FORM),
    ):
        assert reason_of(nested(31), limits=Limits(depth=depth)) is reason
    assert reason_of(nested(30), limits=Limits(depth=20)) is Reason.LIMIT_DEPTH
    ztensor.open(nested(30), limits=Limits(depth=32)).close()


def problems_of(root: Any) -> list[Problem]:
    with pytest.raises(ManifestError) as caught:
        ztensor.open(File2().seal(root))
    return list(caught.value.problems)


EMPTY: dict[str, Any] = {"dtype": "u8", "blob": [4096, 0]}


SHARD = {"size": 48, "digest": "xxh3:" + "0" * 16}


def test_overlapping_blobs_of_a_shard_are_reported_with_its_name() -> None:
    parts = [EMPTY | {"blob": [4096, length], "shard": "one"} for length in (8, 4)]
    objects = {f"{at}": dense(part, [part["blob"][1]]) for at, part in enumerate(parts)}
    root = {"shards": {"one": SHARD | {"size": 9999}}, "objects": objects}
    (problem,) = problems_of(root)
    assert problem.reason is Reason.BLOB_OVERLAP
    found = "found [4096, 4100] and [4096, 4104]"
    assert problem.message == f"expected equal or disjoint blobs of shard 'one', {found}"
    for entry in objects.values():
        del entry["parts"]["data"]["shard"]
    file = File2()
    file.blob(bytes(8))
    with pytest.raises(ManifestError, match=f"disjoint blobs, {re.escape(found)}"):
        ztensor.open(file.seal({"objects": objects}))


@pytest.mark.parametrize("place", ["attributes", "object", "part"])
def test_values_that_an_object_keeps_stay_charged(place: str) -> None:
    """Values that are freed before the next object is decoded are charged once."""
    long = [1.5] * 1000
    fields: dict[str, Any] = {"x": long} if place == "object" else {}
    if place == "attributes":
        fields = {"attributes": {"x": long}}
    part = EMPTY | ({"x": long} if place == "part" else {})
    kept = {f"{at:02}": dense(part, [0], **fields) for at in range(50)}
    limits = Limits(cost_floor=1 << 20, cost_factor=1)
    with pytest.raises(LimitError, match="bytes of memory"):
        ztensor.open(File2().seal({"objects": kept}), limits=limits)
    few = dict(list(kept.items())[:10])
    ztensor.open(File2().seal({"objects": few}), limits=limits).close()


@pytest.mark.parametrize("sizes", [{}, {"block_bytes": 17}, {"block_bytes": 18.0}], ids=str)
def test_the_sizes_of_blocks_are_those_of_their_layout(sizes: dict[str, Any]) -> None:
    file = File2()
    attributes = {"elems_per_block": 32, "block_bytes": 18, **sizes} if sizes else {}
    part = file.part(np.zeros(18, np.uint8))
    entry = dense(part, [32], layout="gguf.q4_0/1", attributes=attributes)
    assert reason_of(file.seal({"objects": {"w": entry}})) is Reason.FIELD_VALUE


@pytest.mark.parametrize(
    ("word", "layout"),
    [
        ("plain", "2.x plain"),
        ("someone.else/2", "someone.else/2"),
        # Words of our namespace that are never written stay as they are.
        *((word, word) for word in ("pyztensor.dense/1", "pyztensor.a/b/1")),
    ],
)
def test_a_word_for_a_layout_is_read_and_written_again(word: str, layout: str) -> None:
    file = File2()
    entry = dense(file.part(np.zeros(3, np.uint8)), [3], layout=word)
    with ztensor.open(file.seal({"objects": {"w": entry}})) as reader:
        tensor = reader.read("w")
    assert tensor.format == layout
    saved = ztensor.numpy.save({"w": tensor}, version="2.1")
    assert cbor.encode(word) in saved


@pytest.mark.wing
def test_blocks_have_the_sizes_of_their_library() -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {kind.name.lower(): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    theirs["q8_1"] = (32, 36)  # two scales of 16 bits; the package has 32 bits, as files once had
    assert {name: theirs[name] for name in GGUF_BLOCKS} == GGUF_BLOCKS
