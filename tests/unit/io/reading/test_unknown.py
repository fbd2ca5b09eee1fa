"""Objects with unknown words: the table of docs/concepts/versions.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, ManifestError, Reason, UnsupportedError
from ztensor.testing.builder import item, sealed
from ztensor.testing.builder_2 import File2, dense

WORDS = np.arange(6, dtype=np.uint16)
OTHER = np.array([1, 2, 3], np.uint16)
BYTES = WORDS.tobytes() + bytes(52) + OTHER.tobytes()


def of_0(what: str, word: str) -> bytes:
    entry: dict[str, Any] = {"dtype": "uint16", "layout": "dense", "encoding": "raw"}
    wrong = {"storage type": "dtype"}.get(what, what)
    odd = entry | {"name": "odd", "shape": [6], "offset": 64, "size": 12, wrong: word}
    good = entry | {"name": "good", "shape": [3], "offset": 128, "size": 6}
    return sealed(b"ZTEN0001" + bytes(56) + BYTES, item([odd, good]))


def of_1(what: str, word: str) -> bytes:
    part: dict[str, Any] = {"dtype": "u16", "offset": 64, "length": 12}
    odd: dict[str, Any] = {"shape": [6], "format": "dense"}
    if what == "layout":
        odd["format"] = word
    else:
        part[{"storage type": "dtype"}.get(what, what)] = word
    good = {"dtype": "u16", "offset": 128, "length": 6}
    objects = {
        "odd": odd | {"components": {"data": part}},
        "good": {"shape": [3], "format": "dense", "components": {"data": good}},
    }
    root = item({"version": "1.2.0", "objects": objects})
    return sealed(b"ZTEN1000" + bytes(56) + BYTES, root, footer=b"ZTEN1000")


def of_2(what: str, word: str) -> bytes:
    file = File2()
    part, layout = file.part(WORDS), "dense"
    if what == "layout":
        layout = word
    elif what == "encoding":
        part |= {"encoding": word, "decoded_length": 12}
    else:
        part[{"storage type": "dtype"}.get(what, what)] = word
    odd = dense(part, [6]) | {"layout": layout}
    return file.seal({"objects": {"odd": odd, "good": dense(file.part(OTHER), [3])}})


MAKE = {"0.1": of_0, "1.x": of_1, "2.x": of_2}
# The reason of the refusal, or how it is read.
TABLE: dict[tuple[str, str], Reason | str] = {
    **{(version, "encoding"): Reason.UNKNOWN_ENCODING for version in MAKE},
    ("0.1", "storage type"): Reason.UNKNOWN_DTYPE,
    ("1.x", "storage type"): Reason.UNKNOWN_DTYPE,
    ("2.x", "storage type"): "refused",
    ("1.x", "type"): "storage elements",
    ("2.x", "type"): Reason.UNKNOWN_TYPE,
    ("0.1", "layout"): Reason.UNKNOWN_LAYOUT,
    ("1.x", "layout"): "components",
    ("2.x", "layout"): "components",
}


@pytest.mark.wing
@pytest.mark.parametrize(("version", "what"), TABLE, ids="-".join)
def test_unknown_words_are_refused_or_read_as_the_table_says(version: str, what: str) -> None:
    outcome = TABLE[version, what]
    word = "u9" if what == "storage type" else "x.odd/1"
    data = MAKE[version](what, word)
    if outcome == "refused":
        with pytest.raises(ManifestError):
            ztensor.open(data)
        return
    with ztensor.open(data) as reader:
        assert sorted(reader) == ["good", "odd"]
        assert reader["good"].tolist() == OTHER.tolist()
        assert not reader.verify(deep=True).problems
        assert reader.metadata("odd").stored_nbytes == 12
        if isinstance(outcome, Reason):
            for read in (reader.read, reader.__getitem__):
                with pytest.raises(UnsupportedError) as caught:
                    read("odd")
                assert (caught.value.reason, caught.value.object_name) == (outcome, "odd")
            with pytest.raises(UnsupportedError):
                ztensor.numpy.load(data)
            return
        found = reader.read("odd")
        assert found.components["data"].tolist() == WORDS.tolist()
        if outcome == "components":
            assert found.format.endswith(word)
            with pytest.raises(ArgumentTypeError):
                reader.read_numpy("odd")
        else:
            assert (found.type, found.dtype) == (word, "uint16")
            assert reader["odd"].tolist() == WORDS.tolist()
