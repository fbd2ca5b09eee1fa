"""What tensors a file holds, as one number: equal wherever names, types, shapes and bytes are.

Where a tensor lies, how it is compressed, which version or format says it, in which order and in
how many files, has no part in it. `docs/guides/formats.md` has the definition for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, NotRepresentableError, describe
from ztensor.ext import (
    ALGORITHMS,
    FileObjects,
    Lock,
    ObjectReader,
    Overlaps,
    Portable,
    cbor,
)
from ztensor.insight.analysis.content import emit_content
from ztensor.insight.analysis.streaming import opened, order_of_bytes, share_out
from ztensor.typing import Readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Progress = Callable[[int, int], None]

# Part of what is hashed: another definition gets another word, and so other ids.
_WORD = "ztensor content 1"
_ALGORITHMS = ("xxh3", "sha256")  # those that 2.x registers (2.1 section 6.1)
# Their attributes are the user's own; those of all other layouts say what the numbers mean.
_PLAIN_LAYOUTS = frozenset({"dense", "sparse_csr", "sparse_coo"})


def content_hash(
    source: Readable,
    *,
    attributes: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Return an id of the tensors in a file: 64 hexadecimal digits.

    Two files have the same id where they hold objects of the same names, and each the same shape,
    layout, element types and element bytes. It does not matter where these lie, whether they are
    compressed, which version or format of file they are in, in which order, or in how many shards.

    It is the sha256 of the deterministic CBOR (RFC 8949 section 4.2.1) of
    `["ztensor content 1", {name: tensor id, ...}]`, each tensor id the 32 bytes that
    `tensor_hashes` gives as digits; with `attributes=True` the list has the map of the file's own
    attributes as a third item.

    Args:
        source: whatever `ztensor.open` takes, or an open reader.
        attributes: True takes the attributes of the file and of all objects in as well.
        threads: how many hash; as many as there are cores, four at most, by default.
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

    The name has no part in it: a renamed tensor keeps its id. It is the sha256 of the
    deterministic CBOR of `[shape, layout, {role: [element type, sha256], ...}, attributes]`, where
    shape is a list of integers, layout the object's `format`, element type the logical type's
    word or else the storage type's (such as `"f8_e4m3fn"`, `"bf16"`), and sha256 that of the
    decoded elements, 32 bytes: little-endian, bools of 0.1 as 0 and 1, indices of sparse layouts
    as u64. Attributes is the map of the object's own where its layout is neither dense nor
    sparse: there they say what the numbers mean. Else it is an empty map.

    Args:
        source: whatever `ztensor.open` takes, or an open reader.
        names: objects; all of them by default.
        attributes: True takes the attributes of dense and sparse objects in as well.
        threads: as for `content_hash`.
        progress: as for `content_hash`.

    Raises:
        ObjectNotFoundError: no object of a name.
        ZTensorError: what `content_hash` raises.
    """
    with opened(source) as reader:
        chosen = list(reader) if names is None else [names] if isinstance(names, str) else names
        return _ids(reader, list(chosen), attributes=attributes, threads=threads, progress=progress)


def content_digest(source: Readable, algorithm: str = "xxh3") -> str:
    """Return the id that the 2.x format defines for what a file holds: `algorithm:hex`.

    It is the digest of the deterministic CBOR of all names, shapes, layouts, attributes of objects,
    types and stored digests (2.1 section 6.4). Nothing but the manifest is read, so it says what
    the file claims; `verify` says whether that is so. It does not change with places, compression
    and shards. It does with the kind of the digests: a model stored with sha256 has another id
    than the same with xxh3. `content_hash` has no such limits, and is ours.

    Only files of 2.x have one: digests of 1.x cover stored bytes, and other formats have none.

    Args:
        source: whatever `ztensor.open` takes, or an open reader.
        algorithm: `"xxh3"` or `"sha256"`.

    Raises:
        NotRepresentableError: a part has no digest of its decoded bytes; which, and what to do.
        ArgumentValueError: another algorithm.
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
    """Return the id of a file whose tensors have these ids."""
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
    total, done, lock = sum(sizes.values()), 0, Lock()
    overlaps = Overlaps(
        (reader.objects.part(name), component)
        for name in names
        for component in reader.objects.part(name).object(name).components.values()
    )

    def id_of(name: str) -> str:
        nonlocal done
        text = _tensor_id(reader.objects.part(name), name, overlaps, attributes=attributes)
        if progress is not None:
            with lock:
                done += sizes[name]
                progress(done, total)
        return text

    return share_out(id_of, sizes, threads, order_of_bytes(reader.objects, sizes))


def _tensor_id(file: FileObjects, name: str, overlaps: Overlaps, *, attributes: bool) -> str:
    portable = Portable()
    found = portable.decoded(file, name)
    there = file.object(name)
    components = {}
    for role, component in found.components.items():
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
    own = found.attributes if attributes or found.format not in _PLAIN_LAYOUTS else None
    return _sha256(cbor.encode([found.shape, found.format, components, own or {}])).hex()


def _sha256(data: bytes) -> bytes:
    hasher = ALGORITHMS["sha256"].hasher()
    hasher.update(data)
    return bytes.fromhex(hasher.hexdigest())
