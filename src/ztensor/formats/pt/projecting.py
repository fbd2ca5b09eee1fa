"""`.pt`, `.pth`, `.bin`: files of `torch.save`, read without torch and without executing anything.

A file is a pickle that describes the object, and the storages of its tensors. Since torch 1.6 it is
a zip archive:

| member | holds |
| --- | --- |
| `archive/data.pkl` | the pickle |
| `archive/data/0`, `archive/data/1`, ... | one storage each, as in memory |
| `archive/byteorder` | `little` or `big`; little if it is missing |
| `archive/version` | the format's version |

Older files, and files written with `_use_new_zipfile_serialization=False`, are a chain of pickles
(a magic number, a version, facts about the machine, the object, the keys of its storages), followed
by the storages, each after its number of elements; all little-endian.

`pickle_reader.py` reads the pickles, `values.py` has their values. Here the object becomes a flat
mapping: names of nested dicts and lists are joined by dots. A dict or list without a tensor becomes
one attribute of the file, and so does any other value. Tensors that are contiguous in C order are
ranges of the file; others are gathered when they are read.
"""

from __future__ import annotations

import bisect
import dataclasses
import struct
import zlib
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError, describe
from ztensor.ext import (
    Component,
    LaterObjects,
    Projection,
    Range,
    Source,
    Tally,
    TensorObject,
)
from ztensor.formats.deflate import Stream
from ztensor.formats.pt.encodings import ByteOrder
from ztensor.formats.pt.objects import Objects, Place
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.formats.pt.pickled import Global, Vocabulary, kind_of, misfit
from ztensor.formats.pt.values import Storage, storage_key, storage_of
from ztensor.formats.pt.vocabulary import CALLS
from ztensor.formats.zip import (
    DEFLATED,
    LOCAL_MAGIC,
    Entry,
    account,
    extents,
    place,
    read_entries,
    require_sum,
    sum_of,
    unpacked,
    zip_crc32,
)
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001

# Members that torch writes for itself; they have no values of users.
_OWN_MEMBERS = (
    "byteorder",
    "version",
    ".format_version",
    ".storage_alignment",
    ".data/serialization_id",
)
_COUNT = struct.Struct("<q")
_STORAGE_COST = 320  # bytes of memory of a storage and its place
_SMALL = 64  # bytes of `byteorder` and `version` at most
_FIRST_BYTES = 1 << 16
_GROWTH = 8


def project(source: Source, budget: Budget) -> Projection:
    """Return the tensors and attributes of a file of `torch.save`.

    Raises:
        FormatError: it is damaged.
        UnsupportedError: its pickle has calls other than those of tensors and plain data, two
            values have the same joined name, or it is a TorchScript module or a tar file.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    head = bytes(source.read(0, min(512, source.size)))
    if head.startswith(LOCAL_MAGIC):
        return _project_archive(source, budget)
    if head.startswith((b"\x80", b"L")):
        return _project_legacy(source, budget)
    raise UnsupportedError(
        "the file is of the tar format of PyTorch before 0.2; load it with an old PyTorch and "
        "save it again",
        reason=Reason.UNKNOWN_VERSION,
    )


# --- The zip archive ------------------------------------------------------------------------


def _project_archive(source: Source, budget: Budget) -> Projection:
    entries = read_entries(source, budget)
    pickles = [n for n in entries if n.endswith("/data.pkl") and n.count("/") == 1]
    if len(pickles) != 1:
        raise UnsupportedError(
            "the zip archive is not a file of torch.save",
            reason=Reason.UNKNOWN_LAYOUT,
            expected="one member 'data.pkl' in one folder",
            found=f"{len(pickles)} among {len(entries)}",
        )
    folder = pickles[0].removesuffix("data.pkl")
    order = _byte_order(source, entries.get(f"{folder}byteorder"))
    version = entries.get(f"{folder}version")
    pickled = entries[pickles[0]]
    left = Tally()
    try:
        value = _unpickled(source, pickled, left, budget)
    except UnsupportedError as error:
        if f"{folder}constants.pkl" in entries and error.reason is Reason.PICKLE_CALL:
            error.hint = (
                "the modules of this TorchScript archive are code: "
                "load it with torch.jit.load and save its state_dict()"
            )
        raise
    streams: dict[str, Stream] = {}
    used = {pickles[0]}

    def place_of(storage: Storage) -> Place:
        entry = entries.get(f"{folder}data/{storage.key}")
        if entry is not None:
            used.add(entry.name)
            stream = None
            if entry.method == DEFLATED:
                stream = streams.get(storage.key) or Stream(entry.size)
                streams[storage.key] = stream
            # torch writes 0 if CRC-32s are disabled.
            digest = zip_crc32(b"", entry.crc) if entry.crc else None
            return Place(entry.begin, entry.length, entry.size, stream, digest)
        if not storage.whole:
            return Place(0, 0, 0)
        raise FormatError(
            "the zip archive has no such storage",
            reason=Reason.COMPONENT_MISSING,
            found=describe(storage.key),
        )

    objects = Objects(place_of, order, budget, left, has_sum=pickled.crc != 0)
    text = b"" if version is None else _contents(source, version, _SMALL).strip()
    projection = objects.projection(value, text.decode("latin-1"))
    sums = [
        sum_of(source, member)
        for name, member in entries.items()
        if name.startswith(f"{folder}data/") and member.crc
    ]
    used.update(f"{folder}{name}" for name in _OWN_MEMBERS)
    placed = _placed(source, projection.manifest.objects, entries.values())
    manifest = projection.manifest._replace(objects=placed)
    return dataclasses.replace(
        projection,
        manifest=manifest,
        sums=sums,
        account=lambda: account(
            source, entries, used, lambda name: _kind_of_member(name.removeprefix(folder)), left()
        ),
    )


def _unpickled(source: Source, entry: Entry, left: Tally, budget: Budget) -> object:
    """Return the value of an archive's pickle; converted values are added to `left`."""
    with budget.lent(2 * entry.size):
        pickle = _contents(source, entry, budget.limits.manifest_bytes)
        value, _ = read_pickle(pickle, Vocabulary(CALLS, storage_of, left.add), budget)
    return value


def _placed(
    source: Source, objects: Mapping[str, TensorObject], entries: Iterable[Entry]
) -> LaterObjects:
    """Return objects; local headers of members are read on demand.

    Args:
        source: the archive.
        objects: the objects, with offsets as if each member had no local header.
        entries: the members.
    """
    by_place = sorted(entries, key=lambda entry: entry.begin)
    begins = [entry.begin for entry in by_place]
    waiting = dict(objects)
    heads: dict[int, int] = {}  # lengths of local headers that were read, by number

    def moved(component: Component) -> Component:
        if not component.length:
            return component
        number = bisect.bisect_right(begins, component.offset) - 1
        if number not in heads:
            heads[number] = place(source, by_place[number]).offset - begins[number]
        return component._replace(offset=component.offset + heads[number])

    def make(name: str) -> TensorObject:
        components = {
            role: moved(component) for role, component in waiting[name].components.items()
        }
        return waiting.pop(name)._replace(components=components)

    return LaterObjects(
        objects, make, where=lambda name: _offset(objects[name]), extents=lambda: extents(by_place)
    )


def _offset(tensor_object: TensorObject) -> int:
    """Return the first offset of an object's components."""
    return min((component.offset for component in tensor_object.components.values()), default=0)


def _kind_of_member(name: str) -> str:
    """Return the kind of an unused member in the loss report."""
    if name.startswith("data/"):
        return "storage without a tensor"
    return "code" if name.startswith("code/") else "member of the archive"


def _contents(source: Source, entry: Entry, most: int) -> bytes:
    """Return a member's bytes.

    Raises:
        EncodingError: they are damaged.
        DigestMismatchError: their CRC-32 differs.
        LimitError: they are longer than `most`.
    """
    if entry.size > most:
        raise LimitError(
            "a member of the zip archive is longer than Limits.manifest_bytes allows",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {most} bytes",
            found=f"{describe(entry.name)} of {entry.size}",
        )
    stored = place(source, entry, min(entry.length, _FIRST_BYTES))
    data = b"".join(unpacked(entry, stored))
    if entry.crc:  # 0 if CRC-32s are disabled
        require_sum(entry, zlib.crc32(data))
    return data


def _byte_order(source: Source, entry: Entry | None) -> ByteOrder:
    order = b"little" if entry is None else _contents(source, entry, _SMALL).strip()
    if order in (b"little", b"big"):
        return "little" if order == b"little" else "big"
    raise FormatError(
        "the byte order is unknown",
        reason=Reason.FIELD_VALUE,
        expected="b'little' or b'big'",
        found=describe(order),
    )


# --- The chain of pickles -------------------------------------------------------------------


def _project_legacy(source: Source, budget: Budget) -> Projection:
    length = min(_FIRST_BYTES, source.size)
    most = min(budget.limits.manifest_bytes, source.size)
    while True:  # the length of the pickles is not stored
        left = Tally()
        storages: dict[str, Storage] = {}
        try:
            data = bytes(source.read(0, length))
            values, position = _pickles(data, storages, left, budget)
            break
        except FormatError as error:
            if error.reason is not Reason.TRUNCATED or length == source.size:
                raise
            if length == most:
                raise LimitError(
                    "the pickles are longer than Limits.manifest_bytes",
                    reason=Reason.LIMIT_MANIFEST,
                    expected=f"at most {most} bytes",
                ) from error
            length = min(most, length * _GROWTH)
    _, version, _, value, keys = values
    if version != LEGACY_VERSION:
        raise UnsupportedError(
            "the version of the file is unknown",
            reason=Reason.UNKNOWN_VERSION,
            expected=str(LEGACY_VERSION),
            found=kind_of(version),
        )
    places = _legacy_places(source, storages, keys, position)
    used: set[str] = set()

    def place_of(storage: Storage) -> Place:
        used.add(storage.key)
        return places[storage.key]

    objects = Objects(place_of, "little", budget, left, has_sum=False)
    projection = objects.projection(value, str(LEGACY_VERSION))
    counted = _counted(source, projection.manifest.objects, places, storages)
    projection = dataclasses.replace(
        projection, manifest=projection.manifest._replace(objects=counted)
    )
    for key, extent in places.items():
        if key not in used and extent.nbytes:
            left.add("storage without a tensor", key, nbytes=extent.nbytes)
    ends = [extent.offset + extent.length for extent in places.values()]
    behind = source.size - max(ends, default=position)
    if behind:
        left.add("bytes behind the last storage", nbytes=behind)
    return projection


def _pickles(
    data: bytes, storages: dict[str, Storage], left: Tally, budget: Budget
) -> tuple[list[object], int]:
    """Return the values of the five pickles, and the offset of their end.

    Args:
        data: the file, or its beginning.
        storages: gets the storages of the object.
        left: the loss report.
        budget: the budget for listing the file.
    """

    def storage(saved_id: object) -> Storage | Global:
        match saved_id:
            case ("module", Global() as kind, _, _):  # a class, with its source code
                left.add("source code of a class", str(kind))
                return kind
        saved = storage_of(saved_id)
        if saved.key not in storages:
            budget.charge_bytes(_STORAGE_COST)
        known = storages.setdefault(saved.key, saved)
        if (known.whole, known.element) != (saved.whole, saved.element):
            raise misfit("a storage", "one size and type everywhere", saved.key, is_type=False)
        return saved

    position = 0
    values: list[object] = []
    for vocabulary in (
        *(Vocabulary(CALLS, storage_of),) * 3,
        Vocabulary(CALLS, storage, left.add),
        Vocabulary({}, storage_of),
    ):
        value, position = read_pickle(data, vocabulary, budget, start=position)
        values.append(value)
        if len(values) == 1 and (type(value) is not int or value != MAGIC):
            raise UnsupportedError(
                "the file is a pickle, but not of torch.save; nothing in it was executed",
                reason=Reason.UNKNOWN_LAYOUT,
                expected="torch's magic number first",
                found=kind_of(value),
            )
    return values, position


def _legacy_places(
    source: Source, storages: Mapping[str, Storage], keys: object, position: int
) -> dict[str, Place]:
    """Return the places of the storages, which are consecutive."""
    if not isinstance(keys, list):
        raise misfit("the list of storages", "a list", keys)
    places: dict[str, Place] = {}
    for member in keys:
        key = storage_key(member)
        storage = storages.get(key)
        if storage is None or key in places:
            raise misfit("the list of storages", "each storage once", key, is_type=False)
        nbytes = storage.whole * storage.element.width
        if position + _COUNT.size + nbytes > source.size:
            raise FormatError(
                "the file ends before its storages do",
                reason=Reason.TRUNCATED,
                expected=f"{describe(position + _COUNT.size + nbytes)} bytes",
                found=str(source.size),
            )
        position += _COUNT.size
        places[key] = Place(position, nbytes, nbytes)
        position += nbytes
    if len(places) != len(storages):
        raise misfit("the list of storages", f"{len(storages)}", len(places), is_type=False)
    return places


def _require_count(source: Source, offset: int, whole: int) -> None:
    """Raise unless the number of elements before a storage equals the pickle's."""
    (count,) = _COUNT.unpack(Range(source, offset - _COUNT.size, _COUNT.size).read(0, _COUNT.size))
    if count != whole:
        raise FormatError(
            "the number of elements of a storage differs from the pickle's",
            reason=Reason.SIZE_MISMATCH,
            expected=str(whole),
            found=str(count),
        )


def _counted(
    source: Source,
    objects: Mapping[str, TensorObject],
    places: Mapping[str, Place],
    storages: Mapping[str, Storage],
) -> LaterObjects:
    """Return objects; storages are checked on demand, as each check costs a request."""
    in_order = sorted((place.offset, storages[key].whole) for key, place in places.items())
    offsets = [offset for offset, _ in in_order]
    known: set[int] = set()

    def make(name: str) -> TensorObject:
        for component in objects[name].components.values():
            number = bisect.bisect_right(offsets, component.offset) - 1
            if component.length and number not in known:
                _require_count(source, *in_order[number])
                known.add(number)
        return objects[name]

    def extents() -> tuple[list[int], list[int], list[bool]]:
        starts = [offset - _COUNT.size for offset in offsets]
        lengths = [place.length + _COUNT.size for place in sorted(places.values())]
        return starts, lengths, [False] * len(starts)

    return LaterObjects(objects, make, where=lambda name: _offset(objects[name]), extents=extents)
