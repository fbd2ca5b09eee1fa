"""Manifests that decode to far more than they are, or break a million rules."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import ztensor
from tests.attacks.peaks import calls_of, peak_of
from tests.attacks.shapes.containers import (
    ITEMS,
    component,
    many,
    mapped,
    root,
    v0_1,
    v1,
    v1_0,
)
from tests.attacks.shapes.containers_2 import SHAPES as SHAPES_2
from tests.extent import amount
from ztensor.errors import MOST_PROBLEMS, Reason
from ztensor.ext import cbor
from ztensor.limits import Budget, Limits
from ztensor.testing.builder import Raw, draft, item

# So small that files of some 10 kB meet it.
TIGHT = Limits(cost_floor=64 << 10, cost_factor=4)
# Held once, not per item: a decoder's table of words.
ONCE = 64 << 10


def refused(data: bytes, limits: Limits = TIGHT) -> Exception:
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(data, limits=limits)
    return caught.value


@pytest.mark.parametrize("name", ITEMS)
def test_the_memory_taken_is_charged(name: str) -> None:
    """Attack: items of CBOR that take up to a hundred times their bytes."""
    data = ITEMS[name](amount(8_000, full=20_000))
    cbor.decode(b"\x00")
    budget = Budget(Limits(cost_floor=1 << 40), 0)
    before = budget.bytes_left
    tracemalloc.start()
    try:
        value = cbor.decode(data, budget=budget)
    except ztensor.errors.ManifestError:
        return  # broken on purpose; `budget.py` measures the memory until then
    finally:
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert value is not None
    assert held <= before - budget.bytes_left + ONCE


def test_long_words_of_an_object_are_charged() -> None:
    """Attack: objects with encodings of many characters, which stay while the file is open."""
    made = draft("1.2.0")
    for number in range(8):
        fields = {"dtype": "i32", "encoding": "z" * 20_000}
        made.add(f"w{number}", [2], {"data": (fields, bytes(8))})
    error: Any = refused(made.to_bytes(), Limits(cost_floor=1 << 14, cost_factor=4))
    assert error.reason is Reason.LIMIT_COST
    ztensor.open(made.to_bytes(), limits=Limits(cost_floor=1 << 14, cost_factor=8)).close()


def test_the_identity_of_a_key_is_charged() -> None:
    """Attack: a key that is a long array takes a hundred times its bytes while it is written."""
    limits = Limits(cost_floor=1 << 20)
    before = b"\x59\x01\x00" + bytes(256)
    data = b"\x82" + before + b"\xa1" + many(56_000, b"\x19\x7f\xff") + b"\x00"

    def decoded() -> object:
        return cbor.decode(data, budget=Budget(limits, len(data)))

    peak_of(decoded)
    assert peak_of(decoded)[0] <= limits.cost_floor + limits.cost_factor * len(data)


@pytest.mark.parametrize(
    "entry", [b"\x00", b"\xa0", component(1 << 60)], ids=["no", "empty", "far"]
)
@pytest.mark.parametrize("kind", ["components", "objects", "0.1", "1.0"])
def test_problems_have_an_end(kind: str, entry: bytes) -> None:
    """Attack: a component of three bytes each of which breaks a rule, a problem for each."""
    entries = mapped(30_000, entry)
    parts = {"shape": [0], "format": "x", "components": Raw(entries)}
    data = {
        "components": v1(root(item({"o": parts}))),
        "objects": v1(root(entries)),
        "0.1": v0_1(many(30_000, entry)),
        "1.0": v1_0(item({"version": "1.0", "tensors": {"o": {**parts, "dtype": "uint8"}}})),
    }[kind]
    error = refused(data, Limits())
    assert isinstance(error, ztensor.errors.ManifestError)
    least = 16 if entry == component(1 << 60) else MOST_PROBLEMS
    assert least <= len(error.problems) < MOST_PROBLEMS + 16
    assert len(str(error)) < 1000


def test_a_thousand_roles_do_not_fill_the_message() -> None:
    """Attack: an object of thousands of unknown roles; the message named all of them."""
    parts = Raw(mapped(100_000, component()))
    data = v1(root(item({"o": {"shape": [0], "format": "dense", "components": parts}})),
              b"ZTEN1000" + bytes(56))  # fmt: skip
    error = refused(data, Limits())
    assert "missing" in str(getattr(error, "reason", ""))
    assert len(str(error)) < 2000


def irregular(count: int, **fields: object) -> bytes:
    """Return objects that no column can hold, each with its 64 bytes of data."""
    objects = {
        f"layer.{i}.weight": {
            "shape": [8, 8],
            "format": "quantized",
            "components": {
                "data": {"dtype": "u8", "offset": 64 * (i + 1), "length": 64, "encoding": "raw"}
            },
            **fields,
        }
        for i in range(count)
    }
    return v1(root(item(objects)), b"ZTEN1000" + bytes(56 + 64 * count))


@pytest.mark.slow
def test_many_irregular_objects_need_little_beside_their_length() -> None:
    """So a quarter of a million of them, each with a cache line of data, meet no limit."""
    data = irregular(20_000)
    with ztensor.open(data, limits=Limits(cost_floor=8 << 20)) as reader:
        assert len(reader) == 20_000
        assert reader.metadata("layer.19999.weight").shape == (8, 8)


OBJECTS = irregular(600)
START = 64 + 64 * 600
ROOT = OBJECTS[START:-16]  # a map of two fields
CHANGED: dict[str, tuple[bytes, Reason]] = {
    "a name twice": (
        ROOT.replace(item("layer.17.weight"), item("layer.16.weight")),
        Reason.CBOR_DUPLICATE_KEY,
    ),
    # The root claims one field more, and the manifest ends behind its key.
    **{
        f"the end behind the key {key.hex()}": (b"\xa3" + ROOT[1:] + key, Reason.CBOR_TRUNCATED)
        for key in (b"\xf5", b"\x01", b"\x80")
    },
    "more fields than bytes": (
        b"\xbb" + (1 << 40).to_bytes(8, "big") + ROOT[1:],
        Reason.CBOR_TRUNCATED,
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_long_manifest_is_refused_for_the_reason_of_a_short_one(name: str) -> None:
    """Attack: objects that are read one by one, and an error behind many of them."""
    manifest, reason = CHANGED[name]
    error = refused(v1(manifest, OBJECTS[:START]), Limits())
    assert getattr(error, "reason", None) is reason


@pytest.mark.parametrize("name", ["plain objects", "plain objects, the last one bad"])
def test_more_plain_objects_than_the_budget_has_are_refused_unread(name: str) -> None:
    """Attack: too many for columns were read one by one to the budget's end: 16 MB took 2.4 s."""
    data = SHAPES_2[name](40_000)
    refused(data)  # lazy imports are not the file's cost
    calls = calls_of(lambda: refused(data))
    assert getattr(refused(data), "reason", None) is Reason.LIMIT_COST
    assert calls < len(ztensor.open(SHAPES_2["plain objects"](40_000)))
