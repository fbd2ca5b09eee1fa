"""Our CBOR against cbor2: each reads the other's output, in any spelling and with any damage."""

from __future__ import annotations

import importlib.metadata
import itertools
import math
import random
import struct
from collections.abc import Mapping
from typing import Any

import cbor2
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.extent import examples
from ztensor.errors import LimitError, ManifestError, Reason
from ztensor.ext import cbor
from ztensor.testing.damage import damaged
from ztensor.testing.strategies import damages

UINT64_MAX = (1 << 64) - 1
REASONS = {
    ManifestError: {reason for reason in Reason if reason.name.startswith("CBOR_")},
    LimitError: {Reason.LIMIT_DEPTH},
}

# Tags cbor2 keeps as they are; the others it turns into dates, numbers, patterns, references.
PLAIN_TAGS = (6, 22, 24, 40, 1000, 65536, 1 << 32, UINT64_MAX)

# --- Values ---------------------------------------------------------------------------------

integers = st.integers(-1 - UINT64_MAX, UINT64_MAX) | st.integers(-300, 300)
texts = st.text(max_size=30) | st.text("abc", max_size=2)
simplest = (
    st.none()
    | st.booleans()
    | integers
    | st.floats()
    | st.floats(width=16)
    | st.binary(max_size=30)
    | texts
    | st.just(cbor.UNDEFINED)
    | st.builds(cbor.Simple, st.integers(0, 19) | st.integers(32, 255))
)


# Mapped, since one_of would else weigh each kind of atom like a kind of container; twice,
# since with fewer the values grow too large to be drawn in time.
atoms = st.one_of(*(simplest.map(lambda atom: atom) for _ in range(2)))
tags = st.sampled_from(PLAIN_TAGS)


def as_map(pairs: list[tuple[object, object]]) -> object:
    """The map of the pairs, the first of each key."""
    different = list({cbor.encode(key): (key, item) for key, item in reversed(pairs)}.values())
    if all(isinstance(key, str) for key, _ in different):
        return dict(different)
    return cbor.Pairs(different)


def values_of(
    tags: st.SearchStrategy[int], keys: st.SearchStrategy[Any] | None
) -> st.SearchStrategy[Any]:
    """Return values of every kind; keys of maps that are no text may be any values by default."""
    values: st.SearchStrategy[Any] = st.deferred(
        lambda: (
            atoms
            | st.lists(values, max_size=4)
            | st.dictionaries(texts, values, max_size=4)
            | maps
            | st.builds(cbor.Tag, tags, values)
        )
    )
    pairs = st.tuples(values if keys is None else keys, values)
    # A dict of cbor2 holds no two keys that Python calls equal.
    unique = None if keys is None else (lambda pair: pair[0])
    maps = st.lists(pairs, max_size=3, unique_by=unique).map(as_map)
    return values


any_values = values_of(tags | st.integers(0, UINT64_MAX), None)
cbor2_values = values_of(tags, texts | integers | st.binary(max_size=5))


def for_cbor2(value: object) -> Any:
    if value == cbor.UNDEFINED:
        return cbor2.undefined
    if isinstance(value, cbor.Simple):
        return cbor2.CBORSimpleValue(value.value)
    if isinstance(value, cbor.Tag):
        return cbor2.CBORTag(value.number, for_cbor2(value.value))
    if isinstance(value, cbor.Pairs):
        return {key: for_cbor2(item) for key, item in value}
    if isinstance(value, dict):
        return {key: for_cbor2(item) for key, item in value.items()}
    if isinstance(value, list):
        return [for_cbor2(item) for item in value]
    return value


def typed(value: Any) -> object:
    """Return something equal only where type and value are, for our values and for cbor2's."""
    if value == cbor.UNDEFINED or value is cbor2.undefined:
        return ("undefined",)
    if isinstance(value, (cbor.Simple, cbor2.CBORSimpleValue)):
        return "simple", value.value
    if isinstance(value, cbor.Tag):
        return "tag", value.number, typed(value.value)
    if isinstance(value, cbor2.CBORTag):
        return "tag", value.tag, typed(value.value)
    if isinstance(value, (Mapping, cbor.Pairs)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return "map", sorted(((typed(key), typed(item)) for key, item in pairs), key=repr)
    if isinstance(value, (list, tuple)):
        return "array", [typed(item) for item in value]
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value.hex()
    return type(value).__name__, value


# --- Spellings ------------------------------------------------------------------------------


class Speller:
    """Writes a value in one of its many well-formed spellings."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def head(self, major: int, argument: int) -> bytes:
        widths = [w for w in (0, 1, 2, 4, 8) if argument < (1 << 8 * w if w else 24)]
        width = self.random.choice(widths)
        info = argument if width == 0 else 24 + width.bit_length() - 1
        return bytes([major << 5 | info]) + (argument.to_bytes(width, "big") if width else b"")

    def spell(self, value: object) -> bytes:
        if isinstance(value, bool) or value is None or isinstance(value, cbor.Simple):
            return cbor.encode(value)
        if isinstance(value, int):
            return self.head(0, value) if value >= 0 else self.head(1, -1 - value)
        if isinstance(value, float):
            return self.number(value)
        if isinstance(value, cbor.Tag):
            return self.head(6, value.number) + self.spell(value.value)
        if isinstance(value, (str, bytes)):
            return self.string(value)
        if isinstance(value, list):
            return self.container(4, [self.spell(item) for item in value])
        if isinstance(value, (dict, cbor.Pairs)):
            pairs = list(value.items() if isinstance(value, dict) else value)
            return self.container(5, [self.spell(key) + self.spell(item) for key, item in pairs])
        return cbor.encode(value)

    def number(self, value: float) -> bytes:
        forms = []
        for initial, layout in ((b"\xf9", ">e"), (b"\xfa", ">f"), (b"\xfb", ">d")):
            try:
                raw = struct.pack(layout, value)
            except OverflowError:
                continue
            if typed(struct.unpack(layout, raw)[0]) == typed(value):
                forms.append(initial + raw)
        return self.random.choice(forms)

    def string(self, value: str | bytes) -> bytes:
        major = 3 if isinstance(value, str) else 2
        if self.random.random() < 0.6:
            return self.chunk(major, value)
        cuts = sorted(self.random.randint(0, len(value)) for _ in range(self.random.randint(0, 3)))
        chunks = [value[a:b] for a, b in zip([0, *cuts], [*cuts, len(value)], strict=True)]
        body = b"".join(self.chunk(major, chunk) for chunk in chunks)
        return bytes([major << 5 | 31]) + body + b"\xff"

    def chunk(self, major: int, value: str | bytes) -> bytes:
        raw = value.encode() if isinstance(value, str) else value
        return self.head(major, len(raw)) + raw

    def container(self, major: int, items: list[bytes]) -> bytes:
        if self.random.random() < 0.6:
            return self.head(major, len(items)) + b"".join(items)
        return bytes([major << 5 | 31]) + b"".join(items) + b"\xff"


CBOR2_MAJOR = int(importlib.metadata.version("cbor2").split(".")[0])  # 5 lets a lone break pass
# It keeps the last of two equal keys, leaves bytes behind the item alone, and nests deeper.
PICKIER_THAN_CBOR2 = (Reason.CBOR_DUPLICATE_KEY, Reason.CBOR_TRAILING, Reason.LIMIT_DEPTH)

seeds = st.integers(0, 1 << 32)

# --- Both libraries on good data ------------------------------------------------------------


@settings(max_examples=examples(400), deadline=None)
@given(value=cbor2_values, is_canonical=st.booleans())
def test_cbor2_and_we_read_each_other(value: object, is_canonical: bool) -> None:
    assert typed(cbor2.loads(cbor.encode(value))) == typed(value)
    again = cbor.decode(cbor2.dumps(for_cbor2(value), canonical=is_canonical))
    assert typed(again) == typed(value)
    assert cbor.encode(again) == cbor.encode(value)


@settings(max_examples=examples(500), deadline=None)
@given(any_values, seeds)
def test_every_spelling_reads_the_same(value: object, seed: int) -> None:
    data = cbor.encode(value)
    for spelling in (data, Speller(seed).spell(value)):
        again = cbor.decode(spelling)
        assert typed(again) == typed(value)
        assert cbor.encode(again) == data


@settings(max_examples=examples(300), deadline=None)
@given(any_values, st.binary(min_size=1, max_size=3), seeds)
def test_a_spelling_is_neither_cut_nor_longer(value: object, more: bytes, seed: int) -> None:
    data = Speller(seed).spell(value)
    for end in range(len(data)):
        assert refusal(data[:end]) is Reason.CBOR_TRUNCATED
    assert refusal(data + more) is Reason.CBOR_TRAILING


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(any_values, any_values), min_size=1, max_size=5), st.data(), seeds)
def test_a_key_twice_in_any_spelling(
    pairs: list[tuple[object, object]], data: st.DataObject, seed: int
) -> None:
    key, _ = data.draw(st.sampled_from(pairs))
    pairs.insert(data.draw(st.integers(0, len(pairs))), (key, 0))
    speller = Speller(seed)
    items = [speller.spell(key) + speller.spell(item) for key, item in pairs]
    assert refusal(speller.container(5, items)) is Reason.CBOR_DUPLICATE_KEY


# --- Both libraries on bad data -------------------------------------------------------------


def refusal(data: bytes) -> Reason | None:
    """Return why we refuse, or None; any other error is a bug."""
    error: ManifestError | LimitError
    try:
        cbor.decode(data)
    except (ManifestError, LimitError) as refused:
        error = refused
    else:
        return None
    assert error.reason in REASONS[type(error)]
    assert " at byte " in error.message
    assert error.expected
    assert error.found
    return error.reason


initials = st.integers(0, 255).map(lambda first: bytes([first]))
fragments = st.lists(
    initials
    | st.sampled_from(
        [b"\x61a", b"\x61b", b"\x78\x01c", b"\xa1", b"\x81", b"\xbf", b"\x9f", b"\xff"]
    )
    | st.sampled_from([b"\x5f", b"\x7f", b"\x41x", b"\xd8\x18", b"\x62\xc3\xbc", b"\xf9\x3c\x00"]),
    max_size=24,
).map(b"".join)


spellings = st.builds(lambda seed, value: Speller(seed).spell(value), seeds, any_values)


def is_beyond_cbor2(value: object) -> bool:
    """Whether cbor2 acts on a tag in it, or merges keys that Python calls equal: 1, 1.0, True."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, cbor.Tag) and item.number not in PLAIN_TAGS:
            return True
        if isinstance(item, cbor.Pairs) and any(
            a == b for (a, _), (b, _) in itertools.combinations(item, 2)
        ):
            return True
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, (list, tuple)):
            pending += item
    return False


@pytest.mark.slow
@settings(max_examples=examples(1500), deadline=None)
@given(st.binary(max_size=40) | fragments | st.builds(damaged, spellings, damages()))
def test_any_bytes(data: bytes) -> None:
    """cbor2 reads accepted bytes the same; bytes that only it accepts are refused on purpose."""
    reason = refusal(data)
    if reason is None:
        value = cbor.decode(data)
        assert typed(cbor.decode(cbor.encode(value))) == typed(value)
        assume(not is_beyond_cbor2(value))
        assert typed(cbor2.loads(data)) == typed(value)
    elif reason not in PICKIER_THAN_CBOR2 and CBOR2_MAJOR >= 6:
        with pytest.raises(cbor2.CBORDecodeError):
            cbor2.loads(data)
