"""Pickles that make far more than they are long."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import ztensor
from tests.attacks.peaks import peak_of, require_listed_in_budget
from tests.attacks.shapes.archives import PICKLES, in_a_zip, legacy
from tests.extent import amount
from ztensor.errors import LimitError, Reason, ZTensorError
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.formats.pt.pickled import Vocabulary
from ztensor.formats.pt.values import storage_of
from ztensor.formats.pt.vocabulary import CALLS
from ztensor.limits import MIB, Budget, Limits

VOCABULARY = Vocabulary(CALLS, storage_of)


FLOOR = amount(1, full=4) * MIB  # less than by default, so that the tests are quick


def reading(data: bytes) -> object:
    return read_pickle(data, VOCABULARY, Budget(Limits(cost_floor=FLOOR), 0))


# What each instruction makes, over and over: more in all than the floor of the budget.
DEAR = {
    "lists": b"](" + b"]" * 56_250 + b"e.",
    "lists appended to": b"](" + b"]Na" * 37_500 + b"e.",
    "dicts": b"](" + b"}" * 93_750 + b"e.",
    "dicts of one": b"](" + b"}NNs" * 31_250 + b"e.",
    "marks": b"(" * 56_250 + b".",
    "tuples": b"N" + b"\x85" * 75_000 + b".",
    "names": b"](" + b"ca\nb\n" * 31_250 + b"e.",
    "calls": b"ccollections\nOrderedDict\nq\0](" + b"h\0)R" * 31_250 + b"e.",
    "numbers": b"](" + b"J\0\0\0\1" * 93_750 + b"e.",
    "floats": b"](" + b"G\1\2\3\4\5\6\7\10" * 93_750 + b"e.",
    "long numbers": b"](" + (b"\x8a\xff" + b"\1" * 255) * 30_000 + b"e.",
    "long decimals": b"](" + (b"L" + b"9" * 90 + b"\n") * 75_000 + b"e.",
    "bytes": b"](" + b"C\2ab" * 125_000 + b"e.",
    "texts": b"](" + b"\x8c\2ab" * 125_000 + b"e.",
    "wide texts": b"](" + (b"X\x10\0\0\0" + "🎈".encode() + b"a" * 12) * 43_750 + b"e.",
    "escaped texts": b"V" + b"\\u1234" * 187_500 + b"\n.",
    "quoted strings": b"S'" + b"\\x41a" * 187_500 + b"'\n.",
    "one wide text": b"X" + struct.pack("<I", MIB) + "🎈".encode()
                     + b"a" * (MIB - 4) + b".",
    "memo": b"N" + b"\x94" * 600_000 + b".",
    "memo with gaps": b"N" + b"".join(b"r%c%c%c\x7f" % (i & 255, i >> 8 & 255, i >> 16)
                                      for i in range(25_000)) + b".",
    "memo in a tuple": b"Nq\0(" + b"h\0" * 312_500 + b"t.",
    "calls that copy": b"](" + b"N" * 4000 + b"eq\0cbuiltins\nset\nq\1"
                       + b"h\1h\0\x85R0" * 4000 + b"N.",
    "calls that copy text": b"X\0\0\4\0" + b"a" * (1 << 18) + b"q\0c_codecs\nencode\nq\1("
                            + b"h\1h\0\x85R" * 100 + b"t.",
    "copies of a dict": b"}(" + b"NN" * 4000 + b"uq\0ccollections\nOrderedDict\nq\1("
                        + b"h\1h\0\x85R" * 2000 + b"t.",
    "states of a dict": b"}(" + b"NN" * 4000 + b"uq\0(" + b"}h\0b" * 2000 + b"t.",
}  # fmt: skip


@pytest.mark.parametrize("name", DEAR)
def test_every_instruction_is_charged_what_it_takes(name: str) -> None:
    """104 kB took 1.6 GB: elements that cost 64 bytes were counted as 8, by calls alone."""
    data = DEAR[name]
    peak, result = peak_of(lambda: reading(data))
    assert isinstance(result, LimitError)
    assert result.reason is Reason.LIMIT_COST
    assert peak <= FLOOR


@pytest.mark.slow
@pytest.mark.parametrize("make", [in_a_zip, legacy], ids=["zip", "legacy"])
def test_real_pickles_are_far_from_it(make: Callable[[bytes], bytes]) -> None:
    """The other way round: a list of 300,000 numbers, and a dict of 100,000 texts, are read."""
    numbers = b"".join(b"M" + struct.pack("<H", i % 60_000) for i in range(300_000))
    texts = b"".join(
        b"X\6\0\0\0%06d" % i + b"\x94" + b"K\1" for i in range(100_000)
    )  # fmt: skip
    body = b"\x80\4}(X\1\0\0\0a](" + numbers + b"eX\1\0\0\0b}(" + texts + b"uu."
    reader = ztensor.open(make(body))
    assert len(reader.attributes["a"]) == 300_000
    assert len(reader.attributes["b"]) == 100_000


def test_a_deflated_pickle_pays_for_its_stored_length() -> None:
    """A thousand bytes deflated to one: the budget grows with the file, not with the pickle."""
    data = in_a_zip(b"\x80\2](" + b"N" * (40 * MIB) + b"e.", deflated=True)
    result = require_listed_in_budget(data)
    assert isinstance(result, LimitError)
    assert result.reason is Reason.LIMIT_COST


@pytest.mark.slow
@pytest.mark.parametrize("name", PICKLES)
def test_the_worst_shapes_stay_in_the_budget(name: str) -> None:
    """The shapes of `make suite SUITE=budget`, as long as a whole pass of them is quick."""
    make: Callable[[int], bytes] = PICKLES[name]
    result = require_listed_in_budget(legacy(make(20_000)))
    assert isinstance(result, (list, ZTensorError))
