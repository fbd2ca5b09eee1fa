"""The attribute of a file that says that its objects are the leaves of a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from ztensor.errors import (
    LimitError,
    ManifestError,
    Reason,
    UnsupportedError,
    UsageError,
    describe,
)
from ztensor.ext import ENCODINGS, AttributeKind, Range, source_of
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.training.tree import columns

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTRIBUTE = "tree"
_VERSION = 1
# A longer shape is compressed: it is mostly names that are alike.
_PLAIN_BYTES = 64 << 10
_LEVEL = 3


def stored_shape(shape: bytes) -> dict[str, object]:
    """Return what the attribute says of a tree of this shape."""
    if len(shape) <= _PLAIN_BYTES:
        return {"version": _VERSION, "shape": shape}
    stored = b"".join(ENCODINGS["zstd"].encode(memoryview(shape), level=_LEVEL))
    compressed = {"version": _VERSION, "shape": stored, "encoding": "zstd", "length": len(shape)}
    try:  # what is alike compresses to so little that it looks like an attack when it is loaded
        budget = Budget(DEFAULT_LIMITS, len(stored))
        columns.charged(shape_of(compressed, budget)[0], budget, len(stored))
    except LimitError:
        return {"version": _VERSION, "shape": shape}
    return compressed


def split_tree(attributes: Mapping[str, Any]) -> tuple[dict[str, Any], object]:
    """Return a file's attributes without its tree, and what they say of that; None for none."""
    rest = dict(attributes)
    told = rest.pop(ATTRIBUTE, None)
    return rest, told


def shape_of(told: object, budget: Budget) -> tuple[bytes, int]:
    """Return the shape that the attribute tells of, and how many bytes of the file it takes.

    Args:
        told: the attribute's value.
        budget: is charged what a compressed shape takes.

    Raises:
        FormatError: it is not what `stored_shape` gives.
        UnsupportedError: a newer release wrote it.
        LimitError: a safety cap is exceeded.
    """
    version = told.get("version") if isinstance(told, dict) else None
    if not isinstance(told, dict) or type(version) is not int:
        raise _malformed("it is no map with a version", describe(told, 40))
    if version > _VERSION:
        raise UnsupportedError(
            "the tree was saved by a newer release",
            reason=Reason.UNKNOWN_VERSION,
            expected=f"version {_VERSION}",
            found=str(version),
        )
    shape, encoding = told.get("shape"), told.get("encoding")
    if not isinstance(shape, bytes):
        raise _malformed("its shape is no byte string", describe(shape, 40))
    if encoding is None:
        return shape, len(shape)
    length = told.get("length")
    if encoding not in ENCODINGS or encoding == "raw" or type(length) is not int or length < 0:
        raise _malformed("its shape is stored in an unknown way", describe(encoding, 40))
    codec, stored = ENCODINGS[encoding], Range(source_of(shape, mapped=False), 0, len(shape))
    codec.require_length(stored, length, budget.limits)
    budget.charge_bytes(length)
    whole = bytearray(length)
    codec.decode_into(stored, memoryview(whole), budget.limits)
    return bytes(whole), len(shape)


def tells_tree(attributes: Mapping[str, object]) -> bool:
    """Return whether attributes say that there is a tree."""
    return _is_tree(attributes.get(ATTRIBUTE))


class _Tree(AttributeKind):
    """The tree of a file: there is one, and it keeps its leaves under whatever names."""

    def is_single(self, value: object) -> bool:
        """Return whether it is a tree."""
        return _is_tree(value)

    def conflict(self, one: str, other: str) -> UsageError:
        """Return the error of two files that hold different trees."""
        error = UsageError(
            "two files hold a tree, and one file holds only one; convert each to a file without "
            "a tree (version 1.1.0 has none) and merge these",
            file=other,
            found=f"also in {one}",
        )
        error.in_python = (
            "ztensor.save_tree({'a': load_tree(one), 'b': load_tree(other)}, path) makes one tree "
            "of both; attributes={} merges the tensors alone"
        )
        return error

    def renamed(self, value: object, names: Mapping[str, str], budget: Budget) -> object:
        """Return the attribute of a file whose objects get other names: the tree stays as it is.

        Raises:
            FormatError: the tree is damaged.
            UnsupportedError: a newer release wrote it.
            LimitError: a safety cap is exceeded.
        """
        if not _is_tree(value):
            return value
        shape, stored = shape_of(value, budget)
        return stored_shape(columns.with_leaves_renamed(shape, names, budget, stored))


TREE = _Tree()


def _is_tree(told: object) -> TypeGuard[dict[str, object]]:
    return isinstance(told, dict) and {"version", "shape"} <= told.keys()


def _malformed(message: str, found: str) -> ManifestError:
    return ManifestError(
        f"the attribute {ATTRIBUTE!r} is malformed: {message}",
        reason=Reason.FIELD_VALUE,
        found=found,
    )
