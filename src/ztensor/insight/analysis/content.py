"""The bytes under the content digest of 2.x (2.1 section 6.4): objects without offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError
from ztensor.ext import EMITTERS, TensorObject, cbor

if TYPE_CHECKING:
    from collections.abc import Iterable


SECTION = "2.1 section 6.4"

_WORD = "zt.content/1"
_HOW = "a file that is written as 2.1 with digests has one, such as OUT.zt of "
_COMMAND = "`ztensor convert FILE OUT.zt --to-version 2.1`"


def emit_content(objects: Iterable[tuple[str, TensorObject]]) -> bytes:
    """Return the bytes whose digest is the content digest.

    They contain names, shapes, layouts, attributes, types and digests as written, but neither
    offsets nor compression.

    Raises:
        NotRepresentableError: a component has no digest, or a digest of its stored bytes, as in
            1.x.
    """
    return cbor.encode([_WORD, {name: _content(name, metadata) for name, metadata in objects}])


def _content(name: str, tensor_object: TensorObject) -> dict[str, object]:
    for role, component in tensor_object.components.items():
        if component.digest is None:
            raise _without_digest(name, role, "none")
        if not component.is_exact:
            raise _without_digest(name, role, "a digest that may cover stored bytes, as in 1.x")
    entry = EMITTERS.named("2.1").entry(tensor_object)
    content = {key: entry[key] for key in ("shape", "layout", "attributes") if key in entry}
    parts = {
        role: {key: part[key] for key in ("dtype", "type", "digest") if key in part}
        for role, part in entry["parts"].items()
    }
    return {**content, "parts": parts}


def _without_digest(name: str, role: str, found: str) -> NotRepresentableError:
    error = NotRepresentableError(
        "the file has no content digest",
        object_name=name,
        component=role,
        expected="a digest of the decoded bytes of every component",
        found=found,
        section=SECTION,
    )
    error.hint = _HOW + _COMMAND
    return error
