"""What the content digest of 2.x is taken of (2.1 section 6.4): objects without their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError
from ztensor.ext import Component, TensorObject, cbor
from ztensor.spec.container.v2.words import theirs, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable


SECTION = "2.1 section 6.4"

_WORD = "zt.content/1"
_HOW = "a file that is written as 2.1 with digests has one, such as OUT.zt of "
_COMMAND = "`ztensor convert FILE OUT.zt --to-version 2.1`"


def emit_content(objects: Iterable[tuple[str, TensorObject]]) -> bytes:
    """Return the bytes whose digest is the content digest.

    Names, shapes, layouts, attributes, types and digests as they are written are in it; where the
    bytes lie and how they are compressed is not.

    Raises:
        NotRepresentableError: a part has no digest, or one that covers its stored bytes, as in 1.x.
    """
    return cbor.encode([_WORD, {name: _content(name, one) for name, one in objects}])


def _content(name: str, tensor_object: TensorObject) -> dict[str, object]:
    layout, attributes = theirs(tensor_object.format, tensor_object.attributes)
    found: dict[str, object] = {
        "shape": tensor_object.shape,
        "layout": layout,
        "parts": {
            role: _part(name, role, component)
            for role, component in tensor_object.components.items()
        },
    }
    if attributes is not None:
        found["attributes"] = attributes
    return found


def _part(name: str, role: str, component: Component) -> dict[str, str]:
    if component.digest is None:
        raise _without_digest(name, role, "none")
    if not component.digest_covers_decoded:
        raise _without_digest(name, role, "one that may cover stored bytes, as in 1.x")
    dtype, logical = words_of(component)
    part = {"dtype": dtype, "digest": component.digest}
    return part if logical is None else {**part, "type": logical}


def _without_digest(name: str, role: str, found: str) -> NotRepresentableError:
    error = NotRepresentableError(
        "the file has no content digest",
        object_name=name,
        component=role,
        expected="a digest of the decoded bytes of every part",
        found=found,
        section=SECTION,
    )
    error.hint = _HOW + _COMMAND
    return error
