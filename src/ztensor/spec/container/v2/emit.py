"""The manifest of 2.x, written: the deterministic form, and the footer that locates it.

An object is representable if parsing its fields gives the same object: the rules are in
`schema.py` only, for both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ztensor.errors import (
    ManifestError,
    NotRepresentableError,
    Problem,
    describe,
)
from ztensor.spec.container.entries import Emitter, named, with_unknown
from ztensor.spec.container.framing import FOOTER_2, MAGIC_2, MANIFEST_2_MOST, PAGE_2, Form
from ztensor.spec.container.v2.schema import DEPTH, OBJECT, ROOT, check_names, parse_object
from ztensor.spec.container.v2.words import WORD_OF_2, block_sizes, written_layout
from ztensor.spec.digest import xxh3
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject, align
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import read_fields

# The set of files in which fields are parsed back: one file that contains every offset.
_ANYWHERE: Mapping[str | None, Shard] = {None: Shard("", 1 << 62, "", 0)}


class Emitter21(Emitter):
    """Writer of 2.1; files of 2.0 are identical.

    Args:
        has_manifest: False for a data shard, whose blobs another file's manifest lists.

    Attributes:
        manifest_most: the longest manifest, in bytes (2.1 section 2.3).
    """

    version = "2.1"
    magic = MAGIC_2
    place = cbor.encode("blob") + b"\x82"
    manifest_most = MANIFEST_2_MOST
    # The default alignment of the releases; the format's least is 4096.
    form = Form(
        alignment=1 << 16,
        alignments=tuple(1 << power for power in range(12, 17)),
        checksums=("xxh3", "sha256"),
        encodings={"zstd": "zt.zstd-seekable/1"},
        indices=("u32", "u64"),
        is_exact=True,
    )

    def __init__(self, *, has_manifest: bool = True) -> None:
        super().__init__()
        self._has_manifest = has_manifest

    def require_name(self, name: str) -> None:
        """Raise for an invalid name of an object or part (2.1 section 3.5)."""
        cbor.encode(name)  # no lone surrogates
        for problem in check_names([name]):
            raise _refusal(problem)

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise if 2.x cannot represent the object, or it would be read as a different one."""
        components = {
            role: component._replace(offset=PAGE_2, shard=None)
            for role, component in tensor_object.components.items()
        }
        read = _words(self.object_of(self.entry(tensor_object._replace(components=components))))
        for place, word in _words(tensor_object).items():
            if read[place] != word:
                raise NotRepresentableError(
                    f"the {place} would be read differently in 2.x",
                    expected=describe(word),
                    found=describe(read[place]),
                    section="2.1 section 3.3",
                )

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise if 2.x cannot represent the file's attributes."""
        root = _read_back({"objects": {}, "attributes": named(attributes)}, levels=0)
        problems: list[Problem] = []
        read_fields(root, ROOT, (), problems)
        for problem in problems or check_names(attributes, ("attributes",)):
            raise _refusal(problem)

    def object_of(self, entry: Mapping[str, Any]) -> TensorObject:
        """Return the object of these fields; attributes of the block size may be left out.

        Raises:
            NotRepresentableError: readers of 2.x would refuse it.
        """
        sizes = block_sizes(entry.get("layout"))
        if sizes:
            entry = {**entry, "attributes": sizes | (entry.get("attributes") or {})}
        problems: list[Problem] = []
        path = ("objects", "any")
        fields = read_fields(_read_back(entry, levels=2), OBJECT, path, problems)
        parsed = parse_object(_ANYWHERE, fields, path, problems) if fields else None
        if problems or parsed is None:
            raise _refusal(problems[0])
        return parsed

    def entry(self, tensor_object: TensorObject) -> Mapping[str, Any]:
        """Return the fields of an object."""
        layout, attributes = written_layout(tensor_object.format, tensor_object.attributes)
        known = {
            "parts": {role: _part(part) for role, part in tensor_object.components.items()},
            "shape": tensor_object.shape,
            "layout": layout,
            "attributes": named(attributes),
        }
        return with_unknown(known, tensor_object.extra)

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return padding, manifest and footer (2.1 sections 2.1 to 2.3)."""
        del prev
        if not self._has_manifest:
            return footer(0, b"")
        offset = align(manifest_offset, self.form.alignment)
        data = self.manifest(manifest)
        return b"".join((bytes(offset - manifest_offset), data, footer(offset, data)))

    def manifest(self, manifest: Manifest) -> bytes:
        """Return the manifest.

        Raises:
            NotRepresentableError: it is longer than 1 GiB, or has content that 2.x cannot hold.
        """
        shards = {
            name: {"size": shard.size, "digest": shard.digest}
            for name, shard in manifest.shards.items()
        }
        known = {"shards": shards or None, "attributes": named(manifest.attributes)}
        root = with_unknown({**known, "objects": None}, manifest.extra)
        _read_back(root, levels=0)
        names = sorted(manifest.objects, key=cbor.key_order)
        root["objects"] = self._emit_objects(manifest.objects, names)
        data = cbor.encode(root)
        if len(data) > self.manifest_most:
            raise NotRepresentableError(
                "the manifest is longer than 2.x allows; divide the objects over several files",
                expected=f"at most {self.manifest_most} bytes",
                found=str(len(data)),
                section="2.1 section 2.3",
            )
        return data


def footer(offset: int, manifest: bytes) -> bytes:
    """Return the footer of a file (2.1 section 2.3); `offset` is 0 without a manifest."""
    digest = xxh3(manifest) if manifest else 0
    return FOOTER_2.pack(offset, len(manifest), digest, 2, 0, MAGIC_2)


def _part(component: Component) -> dict[str, object]:
    is_bool, is_raw = component.dtype == "bool", component.encoding == "raw"
    shard = component.shard
    start = 0 if shard is None else shard.start or 0
    known = {
        "dtype": "u8" if is_bool else component.dtype,
        "blob": (component.offset - start, component.length),
        "type": "bool" if is_bool else component.type,
        "shard": None if shard is None else shard.name,
        "encoding": None if is_raw else component.encoding.removeprefix(WORD_OF_2),
        "decoded_length": None if is_raw else component.decoded_length,
        "digest": component.digest,
    }
    return with_unknown(known, component.extra)


def _words(tensor_object: TensorObject) -> dict[str, object]:
    """Return place to word, for all words of an object that could be read as others."""
    words = {"layout": tensor_object.format, "attributes": sorted(tensor_object.attributes or ())}
    parts = tensor_object.components.items()
    return words | {f"part {role}": (part.dtype, part.type, part.encoding) for role, part in parts}


def _refusal(problem: Problem) -> NotRepresentableError:
    inside = problem._replace(path=problem.path[2:], section=None)
    return NotRepresentableError(
        f"2.x cannot represent it: {inside}",
        component=problem.component,
        section=problem.section,
    )


def _read_back(value: Mapping[str, object], *, levels: int) -> object:
    """Return the value that readers of 2.x decode from a written one.

    Args:
        value: the value to write.
        levels: number of maps of the manifest around it.

    Raises:
        NotRepresentableError: readers would refuse it.
    """
    try:
        return cbor.decode(cbor.encode(value), depth=DEPTH - levels, strict=True)
    except ManifestError as error:
        raise NotRepresentableError(
            f"the value is not allowed in 2.x, or nests deeper than {DEPTH} levels",
            expected=error.expected,
            found=error.found,
            section="2.1 section 3.1",
        ) from error
