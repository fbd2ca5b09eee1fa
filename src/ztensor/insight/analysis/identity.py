"""Ids of the tensors of a file, by names, types, shapes and bytes.

Offsets, compression, version, format, order and number of files do not matter.
`docs/guides/formats.md` has the definition for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, NotRepresentableError, describe
from ztensor.ext import ALGORITHMS, FileObjects, ObjectReader, Overlaps, Portable, cbor
from ztensor.insight.analysis.content import emit_content
from ztensor.insight.analysis.streaming import opened, order_of_bytes, share_out
from ztensor.options import summed
from ztensor.typing import Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Progress = Callable[[int, int], None]

# Part of the hashed data: another definition gets another word, and so other ids.
_WORD = "ztensor content 1"
_ALGORITHMS = ("xxh3", "sha256")  # registered by 2.x (2.1 section 6.1)
# Attributes of these are the user's; attributes of other layouts define the values.
_PLAIN_LAYOUTS = frozenset({"dense", "sparse_csr", "sparse_coo"})


def content_hash(
    source: Readable,
    *,
    attributes: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Return an id of the tensors in a file: 64 hexadecimal digits.

    Two files have the same id if they have objects of the same names, shapes, layouts, element
    types and element bytes. Offsets, compression, version, format, order and number of shards do
    not matter.

    It is the sha256 of the deterministic CBOR (RFC 8949 section 4.2.1) of
    `["ztensor content 1", {name: tensor id, ...}]`, each tensor id the 32 bytes that
    `tensor_hashes` returns as digits; with `attributes=True` the list has the map of the file's own
    attributes as a third item.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        attributes: True includes the attributes of the file and of all objects.
        threads: the number of threads; by default the number of cores, at most four.
        progress: called with the stored bytes hashed so far and of all of them.

    Raises:
        FormatError: the file is damaged; a digest that does not match is damage.
        UnsupportedError: an encoding, or a layout of 0.1, is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    with opened(source) as reader:
        ids = _ids(reader, list(reader), attributes=attributes, threads=threads, progress=progress)
        return combined(ids, reader.attributes if attributes else None)


def tensor_hashes(
    source: Readable,
    names: Iterable[str] | None = None,
    *,
    attributes: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Return an id of each tensor, 64 hexadecimal digits, by name and in the order of the file.

    The name does not matter: a renamed tensor keeps its id. It is the sha256 of the deterministic
    CBOR of `[shape, layout, {role: [element type, sha256], ...}, attributes]`, where shape is a
    list of integers, layout the object's `format`, element type the logical type's word or else the
    storage type's (such as `"f8_e4m3fn"`, `"bf16"`), and sha256 the 32-byte digest of the decoded
    elements: little-endian, bools of 0.1 as 0 and 1, indices of sparse layouts as u64. Attributes
    is the map of the object's attributes if its layout is neither dense nor sparse, where they
    define the values; else an empty map.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        names: the objects; all by default.
        attributes: True includes the attributes of dense and sparse objects.
        threads: as for `content_hash`.
        progress: as for `content_hash`.

    Raises:
        ObjectNotFoundError: no object has one of the names.
        ZTensorError: what `content_hash` raises.
    """
    with opened(source) as reader:
        chosen = list(reader) if names is None else [names] if isinstance(names, str) else names
        return _ids(reader, list(chosen), attributes=attributes, threads=threads, progress=progress)


def content_digest(source: Readable, algorithm: str = "xxh3") -> str:
    """Return the content digest that the 2.x format defines: `algorithm:hex`.

    It is the digest of the deterministic CBOR of all names, shapes, layouts, attributes of objects,
    types and stored digests (2.1 section 6.4). Only the manifest is read, so it relies on the
    stored digests; `verify` checks them. It does not depend on offsets, compression and shards, but
    on the algorithm of the digests: a model stored with sha256 and the same model stored with xxh3
    differ. `content_hash` has no such limits, and is defined by this library.

    Only files of 2.x have one: digests of 1.x cover stored bytes, and other formats have none.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        algorithm: `"xxh3"` or `"sha256"`.

    Raises:
        NotRepresentableError: a component has no digest of its decoded bytes.
        ArgumentValueError: unknown algorithm.
        FormatError: the file is damaged.
        UnsupportedError: it is of a version that is not read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    if algorithm not in _ALGORITHMS:
        raise ArgumentValueError(
            "unknown algorithm",
            expected=f"one of {', '.join(map(repr, _ALGORITHMS))}",
            found=describe(algorithm),
        )
    with opened(source) as reader:
        objects = reader.objects
        try:
            content = emit_content((name, objects.part(name).object(name)) for name in reader)
        except NotRepresentableError as error:
            raise error.locate(file=objects.name) from None
    return ALGORITHMS[algorithm].of((content,))


def combined(ids: dict[str, str], attributes: dict[str, Any] | None = None) -> str:
    """Return the id of a file from the ids of its tensors."""
    content: list[object] = [_WORD, {name: bytes.fromhex(text) for name, text in ids.items()}]
    return _sha256(cbor.encode(content if attributes is None else [*content, attributes])).hex()


def _ids(
    reader: ObjectReader,
    names: list[str],
    *,
    attributes: bool,
    threads: int | None,
    progress: Progress | None,
) -> dict[str, str]:
    sizes = {name: reader.objects.part(name).object(name).stored_nbytes for name in names}
    report = summed(progress, sum(sizes.values()))
    overlaps = Overlaps(
        (reader.objects.part(name), component)
        for name in names
        for component in reader.objects.part(name).object(name).components.values()
    )

    def id_of(name: str) -> str:
        text = _tensor_id(reader.objects.part(name), name, overlaps, attributes=attributes)
        report(sizes[name])
        return text

    return share_out(id_of, sizes, threads, order_of_bytes(reader.objects, sizes))


def _tensor_id(file: FileObjects, name: str, overlaps: Overlaps, *, attributes: bool) -> str:
    portable = Portable()
    decoded = portable.decoded(file, name)
    there = file.object(name)
    components = {}
    for role, component in decoded.components.items():
        stored = there.components[role]

        def hexdigest(charge: Callable[[int], None], role: str = role) -> str:
            hasher = ALGORITHMS["sha256"].hasher()
            for chunk in portable.chunks(file, name, role):
                charge(chunk.nbytes)
                hasher.update(chunk)
            return hasher.hexdigest()

        key = stored._replace(extra=None), component.dtype, file.known_length(name, role)
        text = overlaps.once(file, stored, key, hexdigest)
        components[role] = [component.type or component.dtype, bytes.fromhex(text)]
    own = decoded.attributes if attributes or decoded.format not in _PLAIN_LAYOUTS else None
    return _sha256(cbor.encode([decoded.shape, decoded.format, components, own or {}])).hex()


def _sha256(data: bytes) -> bytes:
    hasher = ALGORITHMS["sha256"].hasher()
    hasher.update(data)
    return bytes.fromhex(hasher.hexdigest())
