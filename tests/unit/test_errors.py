from __future__ import annotations

import copy
import errno
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ztensor.errors import (
    BufferExportError,
    ClosedError,
    DigestMismatchError,
    FormatError,
    LimitError,
    ManifestError,
    MissingDependencyError,
    NotRepresentableError,
    NotZTensorError,
    ObjectNotFoundError,
    Problem,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
    UnsupportedError,
    UnsupportedVersionError,
    UsageError,
    ZTensorError,
    describe,
)


def descendants(kind: type[ZTensorError]) -> Iterator[type[ZTensorError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from descendants(child)


# Errors of ztensor.v2 derive from ours and from those of the releases; a delta's has other reasons.
KINDS = [
    kind
    for kind in dict.fromkeys(descendants(ZTensorError))
    if not {"v2", "delta"} & {*kind.__module__.split(".")}
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_class_has_one_door_and_prints_one_message(kind: type[ZTensorError]) -> None:
    """`test_public_snapshot.py` has the parents of each."""
    doors = (FormatError, UnsupportedError, LimitError, SourceError, UsageError)
    assert sum(issubclass(kind, door) for door in doors) == (kind is not ZTensorError)
    details: dict[str, Any] = {"file": "m.zt", "object_name": "w", "found": "63"}
    if issubclass(kind, SourceError):
        details["errno"] = errno.EIO
    said = "63" if issubclass(kind, UsageError) else "found 63"  # the caller's argument
    # KeyError would print its repr, OSError its errno.
    assert str(kind("broken", **details)) == f"m.zt, object 'w': broken: {said}"


def test_codes_are_their_names() -> None:
    assert [reason.value for reason in Reason] == [reason.name.lower() for reason in Reason]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (NotZTensorError, Reason.NOT_ZTENSOR),
        (DigestMismatchError, Reason.DIGEST_MISMATCH),
        (UnsupportedVersionError, Reason.UNKNOWN_VERSION),
        (MissingDependencyError, Reason.MISSING_DEPENDENCY),
        (SourceError, Reason.SOURCE_FAILED),
        (SourceNotFoundError, Reason.SOURCE_NOT_FOUND),
        (SourcePermissionError, Reason.SOURCE_PERMISSION),
        (SourceNotRegularError, Reason.SOURCE_NOT_REGULAR),
        (UsageError, Reason.ARGUMENT),
        (ObjectNotFoundError, Reason.OBJECT_NOT_FOUND),
        (ClosedError, Reason.CLOSED),
        (NotRepresentableError, Reason.NOT_REPRESENTABLE),
        (BufferExportError, Reason.NOT_REPRESENTABLE),
    ],
)
def test_a_class_with_one_rule_knows_its_code(kind: type[ZTensorError], reason: Reason) -> None:
    assert kind("wrong").reason is reason
    assert kind("wrong", reason=Reason.CLOSED).reason is Reason.CLOSED


# --- The message --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({}, "broken"),
        ({"file": "m.zt"}, "m.zt: broken"),
        ({"object_name": "w"}, "object 'w': broken"),
        (
            {"file": "m.zt", "object_name": "w", "component": "data"},
            "m.zt, object 'w', component 'data': broken",
        ),
        ({"expected": "64"}, "broken: expected 64"),
        ({"found": "63"}, "broken: found 63"),
        ({"expected": "64", "found": "63"}, "broken: expected 64, found 63"),
        ({"section": "1.2 section 4"}, "broken (1.2 section 4)"),
        (
            {"file": "m.zt", "expected": "64", "found": "63", "section": "1.2 section 4"},
            "m.zt: broken: expected 64, found 63 (1.2 section 4)",
        ),
    ],
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_the_message_says_place_sentence_facts_and_section(
    details: dict[str, Any], expected: str
) -> None:
    error = FormatError("broken", **details)
    assert str(error) == expected
    error.hint = "try again"
    assert str(error) == f"{expected}; try again"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    "hostile", ["a\nb", "\x1b[31m", "\u202egnp", "\ud800", "\x00", "é", "x" * 100_000], ids=ascii
)
def test_names_from_a_file_cannot_break_out_of_the_line(hostile: str) -> None:
    message = str(FormatError("broken", object_name=hostile, component=hostile))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("hostile", ["a\nb.zt", "\x1b[31m.zt", "\u202e.zt", "\udcff.zt"], ids=ascii)
def test_a_path_is_shown_as_it_is_typed_but_never_acts(hostile: str) -> None:
    assert str(FormatError("broken", file=hostile)).isprintable()
    assert str(FormatError("broken", file="modèle.zt")) == "modèle.zt: broken"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("w", "'w'"),
        ("é\n", r"'\xe9\n'"),
        ("x" * 80, "'" + "x" * 80 + "'"),
        ("x" * 81, "'" + "x" * 80 + "...'"),
        (bytes(16), repr(bytes(16))),
        (bytes(17), repr(bytes(16)) + "..."),
        (bytearray(b"ab"), "b'ab'"),
        (memoryview(b"ab" * 20), repr(b"ab" * 8) + "..."),
        (2**64, "18446744073709551616"),
        (2**256, "an integer of 257 bits"),
        (-(2**300), "an integer of 301 bits"),
        (True, "True"),
        ([1] * 100, ("[" + "1, " * 100)[:80] + "..."),
        (None, "None"),
    ],
)
def test_describe(value: object, text: str) -> None:
    assert describe(value) == text


# --- Attributes of errors -----------------------------------------------------------------------


def test_locate_fills_in_only_what_is_unknown() -> None:
    error = FormatError("broken", object_name="w")
    assert error.locate(file="m.zt", object_name="v", component="data") is error
    assert (error.file, error.object_name, error.component) == ("m.zt", "w", "data")
    error.locate(file="n.zt", component="values").locate()
    assert (error.file, error.object_name, error.component) == ("m.zt", "w", "data")
    assert FormatError("broken", object_name="").locate(object_name="w").object_name == ""


@pytest.mark.parametrize(
    ("raised", "kind", "reason"),
    [
        (FileNotFoundError(errno.ENOENT, "gone"), SourceNotFoundError, Reason.SOURCE_NOT_FOUND),
        (PermissionError(errno.EACCES, "no"), SourcePermissionError, Reason.SOURCE_PERMISSION),
        (PermissionError(errno.EPERM, "no"), SourcePermissionError, Reason.SOURCE_PERMISSION),
        (IsADirectoryError(errno.EISDIR, "dir"), SourceNotRegularError, Reason.SOURCE_NOT_REGULAR),
        (OSError(errno.ENOSPC, "full"), SourceError, Reason.SOURCE_FAILED),
        (OSError("no number"), SourceError, Reason.SOURCE_FAILED),
        (OSError(), SourceError, Reason.SOURCE_FAILED),
    ],
    ids=["missing", "forbidden", "not owner", "folder", "full", "no errno", "nothing"],
)
def test_errors_of_the_system_keep_their_number(
    raised: OSError, kind: type[SourceError], reason: Reason
) -> None:
    error = SourceError.from_os(raised, "cannot read", "m.zt")
    assert type(error) is kind
    assert error.reason is reason
    assert error.errno == raised.errno
    assert error.filename == error.file == "m.zt"
    assert error.strerror == error.message


def complete(kind: type[ZTensorError]) -> ZTensorError:
    """Return an error with everything it can carry."""
    details: dict[str, Any] = {
        "reason": Reason.FIELD_VALUE,
        "file": "m.zt",
        "object_name": "w\n",
        "component": "data",
        "expected": "64",
        "found": "63",
        "section": "1.2 section 4",
    }
    if issubclass(kind, ManifestError):
        details["problems"] = [Problem(Reason.FIELD_TYPE, "wrong", ("objects", 1), "s", "w", "d")]
    if issubclass(kind, DigestMismatchError):
        details |= {"algorithm": "crc32c", "actual": "00000000"}
    if issubclass(kind, SourceError):
        details["errno"] = errno.EIO
    return kind("broken", **details)


def carried(error: ZTensorError) -> dict[str, Any]:
    system = ("errno", "strerror", "filename") if isinstance(error, OSError) else ()
    return {**vars(error), **{name: getattr(error, name) for name in system}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("is_located", [True, False])
def test_errors_come_back_from_other_processes(kind: type[ZTensorError], is_located: bool) -> None:
    error = complete(kind) if is_located else kind("broken")
    copies = [
        pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for other in (*copies, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert other is not error
        assert carried(other) == carried(error)
        assert (other.args, str(other)) == (error.args, str(error))
