"""The attribute of a file that makes its objects the leaves of a tree."""

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
# Longer shapes are compressed: they are mostly similar names.
_PLAIN_BYTES = 64 << 10
_LEVEL = 3


def stored_shape(shape: bytes) -> dict[str, object]:
    """Return the attribute for a tree of this shape."""
    if len(shape) <= _PLAIN_BYTES:
        return {"version": _VERSION, "shape": shape}
    stored = b"".join(ENCODINGS["zstd"].encode(memoryview(shape), level=_LEVEL))
    compressed = {"version": _VERSION, "shape": stored, "encoding": "zstd", "length": len(shape)}
    try:  # a shape that compresses extremely well would be refused when it is loaded
        budget = Budget(DEFAULT_LIMITS, len(stored))
        columns.charged(shape_of(compressed, budget)[0], budget, len(stored))
    except LimitError:
        return {"version": _VERSION, "shape": shape}
    return compressed


def split_tree(attributes: Mapping[str, Any]) -> tuple[dict[str, Any], object]:
    """Return a file's other attributes, and the attribute of its tree or None."""
    rest = dict(attributes)
    attribute = rest.pop(ATTRIBUTE, None)
    return rest, attribute


def shape_of(attribute: object, budget: Budget) -> tuple[bytes, int]:
    """Return the shape in an attribute, and the bytes of the file that it takes.

    Args:
        attribute: the attribute's value.
        budget: charged for a compressed shape.

    Raises:
        FormatError: the attribute is malformed.
        UnsupportedError: a newer release wrote it.
        LimitError: a safety cap is exceeded.
    """
    version = attribute.get("version") if isinstance(attribute, dict) else None
    if not isinstance(attribute, dict) or type(version) is not int:
        raise _malformed("it is not a map with a version", describe(attribute, 40))
    if version > _VERSION:
        raise UnsupportedError(
            "the tree was saved by a newer release",
            reason=Reason.UNKNOWN_VERSION,
            expected=f"version {_VERSION}",
            found=str(version),
        )
    shape, encoding = attribute.get("shape"), attribute.get("encoding")
    if not isinstance(shape, bytes):
        raise _malformed("its shape is not a byte string", describe(shape, 40))
    if encoding is None:
        return shape, len(shape)
    length = attribute.get("length")
    if encoding not in ENCODINGS or encoding == "raw" or type(length) is not int or length < 0:
        raise _malformed("its shape has an unknown encoding", describe(encoding, 40))
    codec, stored = ENCODINGS[encoding], Range(source_of(shape, mapped=False), 0, len(shape))
    codec.require_length(stored, length, budget.limits)
    budget.charge_bytes(length)
    whole = bytearray(length)
    codec.decode_into(stored, memoryview(whole), budget.limits)
    return bytes(whole), len(shape)


def has_tree(attributes: Mapping[str, object]) -> bool:
    """Return whether attributes have a tree."""
    return _is_tree(attributes.get(ATTRIBUTE))


class _Tree(AttributeKind):
    """The tree of a file: a file has only one, and its leaves may be renamed."""

    def is_single(self, value: object) -> bool:
        """Return whether the value is a tree."""
        return _is_tree(value)

    def conflict(self, one: str, other: str) -> UsageError:
        """Return the error for two files with different trees."""
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
        """Return the attribute for renamed objects; the tree stays the same.

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


def _is_tree(attribute: object) -> TypeGuard[dict[str, object]]:
    return isinstance(attribute, dict) and {"version", "shape"} <= attribute.keys()


def _malformed(message: str, found: str) -> ManifestError:
    return ManifestError(
        f"the attribute {ATTRIBUTE!r} is malformed: {message}",
        reason=Reason.FIELD_VALUE,
        found=found,
    )
