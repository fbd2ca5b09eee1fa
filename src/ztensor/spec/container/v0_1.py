"""The index of 0.1.0: one CBOR array, one map per tensor (0.1 sections 3.3 and 4).

| field | kind | required |
| --- | --- | --- |
| `name` | text | yes |
| `offset`, `size` | uint64 | yes |
| `dtype`, `encoding` | text | yes |
| `shape` | array of uint64 | yes |
| `layout` | text, default `dense` (the README of 0.1.0; the released library demands it) | no |
| `data_endianness` | `little` or `big`, for raw elements wider than a byte | no |
| `checksum` | text | no |

Every other field is the user's own and becomes an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztensor.errors import Problem, Reason, describe
from ztensor.limits import Budget
from ztensor.spec.container.entries import Emitter, named, refused, with_unknown
from ztensor.spec.container.framing import FORM_1_1, MAGIC_0_1, Frame
from ztensor.spec.container.walk import check_blob, read_object, require_none
from ztensor.spec.model.dtype import BY_LONG_NAME
from ztensor.spec.model.manifest import Component, Manifest, TensorObject
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import Record, kind_of, read_fields

SECTION = "0.1 section 4"
VERSION = "0.1.0"

ENTRY = Record(
    "a map describing one tensor",
    SECTION,
    {
        "name": str, "dtype": str, "offset": int, "size": int, "shape": list,
        "encoding": str, "layout": str, "data_endianness": str, "checksum": str,
    },
    optional=("layout", "data_endianness", "checksum"),
)  # fmt: skip


def parse_manifest(data: bytes, frame: Frame, budget: Budget) -> Manifest:
    """Parse the index.

    Args:
        data: the index's bytes.
        frame: their extent in the file.
        budget: the file's budget; of its limits, `depth` is used.

    Raises:
        ManifestError: it is not one well-formed CBOR array of maps, or breaks rules.
        LimitError: it nests too deep.
    """
    decoder = cbor.Decoder(data, budget, depth=budget.limits.depth)
    problems: list[Problem] = []
    objects: dict[str, TensorObject] = {}

    def visit(index: int, start: int) -> tuple[None, int]:
        known, name = len(problems), None

        def parse(entry: object, problems: list[Problem]) -> TensorObject | None:
            nonlocal name
            name = entry.get("name") if isinstance(entry, dict) else None
            tensor_object = _parse_entry(entry, index, frame.manifest_offset, problems)
            if isinstance(name, str) and name in objects:
                message = f"expected distinct names, found {describe(name)} a second time"
                path = (index, "name")
                problems.append(Problem(Reason.DUPLICATE_NAME, message, path, SECTION))
            return tensor_object

        tensor_object, end = read_object(decoder, start, 1, parse, problems)
        if isinstance(name, str):
            problems[known:] = [problem.about(name) for problem in problems[known:]]
            if tensor_object is not None:
                objects[name] = tensor_object
        return None, end

    entries, end = decoder.visit(0, 0, visit)
    if type(entries) is not list:
        decoder.require_end(end)
        message = f"expected a CBOR array of maps, found {kind_of(entries)}"
        problems = [Problem(Reason.FIELD_TYPE, message, (), "0.1 section 3.3.1")]
    require_none(problems)
    decoder.require_end(end)
    return Manifest(VERSION, objects)


def _parse_entry(
    entry: object, index: int, blobs_end: int, problems: list[Problem]
) -> TensorObject | None:
    fields = read_fields(entry, ENTRY, (index,), problems)
    if not fields:
        return None
    _, word, offset, size, shape, encoding, layout, endianness, checksum, custom = fields
    if endianness not in (None, "little", "big"):
        message = f"expected 'little' or 'big', found {describe(endianness)}"
        path = (index, "data_endianness")
        problems.append(Problem(Reason.FIELD_VALUE, message, path, SECTION))
    storage = BY_LONG_NAME.get(word)
    # The byte order is defined for raw elements wider than a byte only; elsewhere it is ignored.
    is_swapped = encoding == "raw" and storage is not None and storage.width > 1
    component = Component(
        storage.name if storage is not None else word,
        offset,
        size,
        encoding=encoding,
        digest=checksum,
        byte_order="big" if endianness == "big" and is_swapped else "little",
        nonzero_is_true=True,
    )
    problems += check_blob(component, blobs_end, (index,), "checksum")
    # 0.1 defines no other layout: every other word is unknown, even one that a later version has.
    is_opaque = layout not in (None, "dense")
    word = f"{layout} of 0.1" if is_opaque else "dense"
    return TensorObject(shape, word, {"data": component}, custom, is_opaque=is_opaque)


class Emitter01(Emitter):
    """Writer of 0.1.0: entries in the order of the objects, fields in the released writers'."""

    version = VERSION
    magic = MAGIC_0_1
    form = FORM_1_1
    levels = 1

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise if there are any: files of 0.1.0 have no attributes (0.1 section 3.3)."""
        if attributes:
            message = "has no attributes of the whole file; write version 1.2.0"
            found = ", ".join(map(describe, list(attributes)[:5]))
            raise refused(VERSION, message, found, "0.1 section 3.3")

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return index and size field (0.1 section 3.3), which do not depend on their offset."""
        del manifest_offset, prev
        objects = manifest.objects.items()
        entries = [self.entry(tensor_object, name) for name, tensor_object in objects]
        data = cbor.encode(entries)
        return data + len(data).to_bytes(8, "little")

    def entry(self, tensor_object: TensorObject, name: str = "") -> Mapping[str, Any]:
        """Return the fields of a tensor, with its name."""
        component = tensor_object.components.get("data")
        if tensor_object.format != "dense" or len(tensor_object.components) != 1 or not component:
            roles = ", ".join(map(describe, tensor_object.components))
            message = "holds dense tensors of one component only; write version 1.2.0"
            found = f"format {describe(tensor_object.format)} with {roles}"
            raise refused(VERSION, message, found, SECTION)
        storage = component.storage
        if storage is None:
            message = "has no such storage type; exclude the object to write the others"
            raise refused(VERSION, message, describe(component.dtype), "0.1 section 5.1")
        if component.type is not None:
            elements = f"{storage.long_name} elements"
            message = f"has no logical types; write version 1.2.0, or pass the {elements}"
            raise refused(VERSION, message, describe(component.type), "0.1 section 5.1")
        has_order = component.encoding == "raw" and storage.width > 1
        known = {
            "name": name,
            "offset": component.offset,
            "size": component.length,
            "dtype": storage.long_name,
            "layout": "dense",  # the released 0.1 library requires it
            "shape": tensor_object.shape,
            "encoding": component.encoding,
            "data_endianness": component.byte_order if has_order else None,
            "checksum": component.digest,
        }
        return cbor.Fields(with_unknown(known, named(tensor_object.attributes)))
