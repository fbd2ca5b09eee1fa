"""Judge whether a reader's answer is what the corpus expects.

`tests/corpus/README.md` describes the entries of `corpus.json`. Fields that an answer lacks are not
judged, except that a file to refuse must be refused.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TYPE_CHECKING, Any

from ztensor.conformance.answer import Answer, Ended
from ztensor.errors import counted, describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Entry = Mapping[str, Any]


class Outcome(enum.StrEnum):
    """The outcome for one file."""

    EXPECTED = "as expected"
    WRONG = "wrong"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one file.

    Attributes:
        path: the file, from the folder of the corpus.
        section: the version, and a section of its specification or the file's writer.
        expect: `accept`, `reject` or `either`.
        outcome: `as expected`, `wrong`, `crashed` or `timed out`.
        why: a sentence; empty if the outcome is as expected.
    """

    path: str
    section: str
    expect: str
    outcome: Outcome
    why: str = ""


def expected_of(entry: Entry) -> str:
    """Return `accept`, `reject` or `either`.

    A file written by a release is refused only for a container outside of the corpus; a reader of
    that container may accept it.
    """
    expect = str(entry["expect"])
    return "either" if expect == "reject" and entry.get("origin") == "real" else expect


def section_of(entry: Entry) -> str:
    """Return the section of a file, for a row of the table."""
    version = str(entry["spec_version"])
    if entry.get("origin") == "real":
        return f"{version} written by {entry.get('writer', 'a release')}"
    rule = str(entry.get("rule", ""))
    if not rule:
        return f"{version} what the text allows"
    section = re.sub(r"^[\d./ ]*\d\.\d\.\d ", "", rule.split(":")[0])
    return f"{version} {'what no text decides' if section == 'none' else section}"


def judge(entry: Entry, answer: Answer) -> Verdict:
    """Compare an answer with the corpus."""
    expect = expected_of(entry)
    found = {Ended.CRASHED: Outcome.CRASHED, Ended.TIMED_OUT: Outcome.TIMED_OUT}.get(answer.ended)
    if found is not None:
        why = answer.why
    else:
        why = _wrong(entry, expect, answer) or ""
        found = Outcome.WRONG if why else Outcome.EXPECTED
    return Verdict(str(entry["path"]), section_of(entry), expect, found, why)


def _wrong(entry: Entry, expect: str, answer: Answer) -> str | None:
    if answer.ended is Ended.REFUSED:
        return "refused, but it is right" if expect == "accept" else None
    if expect == "reject":
        return _not_refused(entry, answer)
    return next(_differences(entry, expect, answer), None)


def _not_refused(entry: Entry, answer: Answer) -> str | None:
    """Return the fault of an answer that accepts a file with a part to refuse, or None."""
    stage, name = entry["stage"], entry.get("object")
    rule = f"accepted, against {entry['rule']}"
    if stage == "open":
        return rule
    if stage == "verify" and answer.verified is False:
        return None
    if answer.objects is None:
        return rule
    read = answer.objects if name is None else {name: answer.objects.get(name, {"error": ""})}
    if not any("error" in found for found in read.values()):
        return rule if name is None else f"object {describe(name)} {rule}"
    good = {key: one for key, one in entry.get("objects", {}).items() if key != name}
    return next(_objects_differ(entry, good, answer.objects), None)


def _differences(entry: Entry, expect: str, answer: Answer) -> Iterator[str]:
    if answer.objects is None:
        return
    objects = entry.get("objects")
    if objects is None:
        return
    free = frozenset(entry.get("may_refuse", ()))
    if expect == "either":
        free = frozenset(objects)
    count = entry.get("object_count", len(objects))
    if len(answer.objects) != count and expect == "accept":
        yield f"expected {counted(count, 'object')}, found {len(answer.objects)}"
    yield from _objects_differ(entry, objects, answer.objects, free)
    is_damaged = any(
        component.get("digest_ok") is False
        for one in objects.values()
        for component in one["components"].values()
    )
    if expect == "accept" and answer.verified is is_damaged:
        yield "damage was found, and there is none" if not is_damaged else "damage was not found"


def _objects_differ(
    entry: Entry,
    expected: Mapping[str, Any],
    found: Mapping[str, Any],
    free: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Yield what differs; objects of `free` may have an error."""
    version = str(entry["spec_version"])
    for name, one in expected.items():
        answer = found.get(name)
        readable = one.get("readable", True)
        if answer is None:
            if name not in free:
                yield f"object {describe(name)} is missing"
        elif "error" in answer:
            if name not in free and readable is True:
                yield f"object {describe(name)} was refused: {describe(answer['error'])}"
        elif readable is False and answer.get("dense_sha256") is not None:
            yield f"object {describe(name)} was read, although its layout is unknown"
        else:
            for fact in _facts_differ(one, answer, version):
                yield f"object {describe(name)}: {fact}"


def _facts_differ(
    expected: Mapping[str, Any], found: Mapping[str, Any], version: str
) -> Iterator[str]:
    if found.get("shape", expected["shape"]) != expected["shape"]:
        yield f"expected the shape {expected['shape']}, found {describe(found['shape'])}"
    dense, wanted = found.get("dense_sha256"), expected.get("dense_sha256")
    if dense is not None and wanted is not None and dense != wanted:
        yield f"expected the elements {wanted[:16]}..., found {describe(dense, 16)}"
    components = found.get("components")
    if not isinstance(components, dict):
        return
    if components.keys() != expected["components"].keys():
        names = ", ".join(sorted(expected["components"]))
        yield f"expected the components {names}, found {describe(sorted(components))}"
    for role, one in expected["components"].items():
        digest = one.get("sha256") or one.get("packed_sha256")
        if version == "0.1.0" and one.get("dtype") == "bool":
            continue  # any byte but 0 is true there, and readers may give another
        own = components.get(role)
        if own is not None and digest is not None and own != digest:
            facts = f"expected {digest[:16]}..., found {describe(own, 16)}"
            yield f"component {describe(role)}: {facts}"
