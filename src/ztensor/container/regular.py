"""Large manifests of 1.1 and 1.2 by columns: what `v1.py` says of one object, for all at once.

Most objects of most files are plain: dense, one component, no attributes, the fields in the order
released writers and ours put them. `wire/lockstep.py` reads those side by side, the rules are
checked as array operations, and what is kept are columns of numbers; a `TensorObject` is made when
one is asked for. Any other object is read by `v1.py` between them.

This is only ever a shortcut: where the file is not mostly of that form, or anything in it breaks a
rule, `read_root` returns None, and the general decoder reads all and says what is wrong. How it
is known that both give the same:

- The first name begins behind the head of `objects`. Where one object ends the next name begins,
  and it has to end where the next object begins; so each object is where the decoder meets it,
  though the places were first guessed by looking for the bytes objects begin with.
- An object counts as plain only if no rule concerns it, neither of the schema nor of its layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ztensor.container import v1
from ztensor.digest import ALGORITHMS, WRITABLE
from ztensor.errors import LimitError, ManifestError
from ztensor.model.dtype import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.model.manifest import Component, TensorObject
from ztensor.model.rules import ALIGNMENT
from ztensor.wire import cbor
from ztensor.wire.lockstep import ARRAY, MAP, TEXT, UNSIGNED, Lanes, Vocabulary, find_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.container.framing import Frame
    from ztensor.limits import Limits
    from ztensor.model.problem import Problem

    Ints = np.ndarray[Any, np.dtype[np.int64]]
    Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 8192  # objects read side by side: what is gathered of them stays in cache
_LEAST_BYTES = 60  # what a plain object takes at least
_LEAST_DEPTH = 5  # how deep a plain object nests, counted from the root
_MOST_RANK = 8
_MOST_ELEMENTS = float(1 << 50)  # up to here float64 counts exactly, and no size overflows
_FEW = 16  # objects that are not plain are read one by one: this many, and one of so many

_text = cbor.encode_text
_START = b"\xa3" + _text("shape")
_MIDDLE = b"".join(
    (_text("format"), _text("dense"), _text("components"), b"\xa1", _text("data"))
)  # what is between the shape and the component's fields

_ENCODINGS = Vocabulary(("raw", "zstd"))
# The digests writers write: the whole text but its digits, and how many those are.
_DIGESTS = tuple(
    (_text(algorithm.spell(algorithm.digits * "0"))[: -algorithm.digits], algorithm.digits)
    for algorithm in map(ALGORITHMS.__getitem__, WRITABLE)
)


class _IrregularError(Exception):
    """The manifest is for the general decoder."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The plain objects of a manifest: row i of every column is about the i-th of them.

    They are dense, have one component `data`, little-endian and no attributes, and everything the
    manifest alone can show is right with them: types and encodings are known, places lie within
    the file, sizes fit the shapes.

    Attributes:
        names: in the order of the file.
        offsets: first byte in the file, int64.
        lengths: bytes on disk, int64.
        types: indices into `spellings`, int64.
        spellings: pairs of storage type and logical type (None for none), as the model names them.
        ranks: how many dimensions, int64.
        dims: the dimensions of all, uint64; those of row i begin at `dim_starts[i]`. Not all of
            it need be in use.
        dim_starts: int64.
        is_raw: whether the encoding is `raw`, else it is `zstd`; bool.
        decoded_lengths: `uncompressed_length`, -1 where there is none; int64.
        digest_starts: where in the manifest the digest's text begins; int64.
        digest_lengths: how long it is, 0 where there is none; int64.
    """

    names: list[str]
    offsets: Ints
    lengths: Ints
    types: Ints
    spellings: tuple[tuple[str, str | None], ...]
    ranks: Ints
    dims: np.ndarray[Any, np.dtype[np.uint64]]
    dim_starts: Ints
    is_raw: np.ndarray[Any, np.dtype[np.bool_]]
    decoded_lengths: Ints
    digest_starts: Ints
    digest_lengths: Ints


class RegularObjects(Mapping[str, TensorObject]):
    """The objects of a manifest by name, each made when it is asked for.

    Args:
        data: the manifest.
        columns: the plain objects.
        others: the other ones.
        order: all names, in the order of the file.
        is_1_1: whether digests may cover decoded bytes.

    Raises:
        _IrregularError: a name comes twice.
    """

    __slots__ = ("_data", "_is_1_1", "_order", "_rows", "columns", "others")

    def __init__(
        self,
        data: bytes,
        columns: Columns,
        others: dict[str, TensorObject],
        order: list[str],
        *,
        is_1_1: bool,
    ) -> None:
        self.columns = columns
        self.others = others
        self._data = data
        self._order = order
        self._is_1_1 = is_1_1
        self._rows = dict(zip(columns.names, range(len(columns.names)), strict=True))
        if len(self._rows) < len(columns.names) or not self._rows.keys().isdisjoint(others):
            raise _IrregularError

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __contains__(self, name: object) -> bool:
        return name in self._rows or name in self.others

    def __getitem__(self, name: str) -> TensorObject:
        row = self._rows.get(name)
        if row is None:
            return self.others[name]
        columns = self.columns
        dtype, logical = columns.spellings[columns.types[row]]
        first_dim = columns.dim_starts[row]
        shape = columns.dims[first_dim : first_dim + columns.ranks[row]]
        digest = None
        if length := columns.digest_lengths.item(row):
            start = columns.digest_starts.item(row)
            digest = self._data[start : start + length].decode("ascii")
        decoded_length = columns.decoded_lengths.item(row)
        component = Component(
            dtype,
            columns.offsets.item(row),
            columns.lengths.item(row),
            logical,
            "raw" if columns.is_raw[row] else "zstd",
            digest,
            None if decoded_length < 0 else decoded_length,
            digest_may_cover_decoded=self._is_1_1,
        )
        return TensorObject(tuple(shape.tolist()), "dense", {"data": component})


# --- The root -------------------------------------------------------------------------------


def read_root(
    data: bytes, frame: Frame, limits: Limits
) -> tuple[dict[str, object], RegularObjects] | None:
    """Return the fields of the root, `objects` an empty map, and the objects; or None.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        limits: `depth` is used.

    Returns:
        None where the manifest is not of the regular form, or something in it is wrong.
    """
    if limits.depth < _LEAST_DEPTH:
        return None
    try:
        return _read_root(data, frame, limits)
    except (_IrregularError, ManifestError, LimitError):
        return None


def _read_root(
    data: bytes, frame: Frame, limits: Limits
) -> tuple[dict[str, object], RegularObjects]:
    root: dict[str, object] = {}
    objects = None
    pairs, pos = cbor.map_head(data, 0)
    for _ in range(pairs):
        key, pos = cbor.decode_item(data, pos, depth=limits.depth - 1)
        if not isinstance(key, str) or key in root:
            raise _IrregularError
        if key == "objects":
            root[key] = {}
            objects = _Objects(data, pos, frame.manifest_offset, limits.depth - 2)
            pos = objects.end
        else:
            root[key], pos = cbor.decode_item(data, pos, depth=limits.depth - 1)
    if pos != len(data) or objects is None:
        raise _IrregularError
    version = root.get("version")
    is_1_1 = isinstance(version, str) and version.startswith("1.1")
    return root, objects.mapping(frame, is_1_1=is_1_1)


# --- All objects ----------------------------------------------------------------------------


class _Objects:
    """The map of objects, read but for the entries of those that are not plain.

    Args:
        data: the manifest.
        start: where the map begins.
        blobs_end: where in the file the manifest begins.
        depth: how deep an object may nest.

    Attributes:
        end: where the map ends.

    Raises:
        _IrregularError: it is not of the regular form.
        ManifestError: likewise.
        LimitError: likewise.
    """

    def __init__(self, data: bytes, start: int, blobs_end: int, depth: int) -> None:
        self._data = data
        self._depth = depth
        self._others: list[tuple[str, object]] = []
        count, first_name = cbor.map_head(data, start)
        self._few = _FEW + count // _FEW
        starts = None
        if 0 < count <= self._few + (len(data) - first_name) // _LEAST_BYTES:
            starts = find_all(data, first_name, _START, most=2 * count)
        if starts is None or not count - self._few <= len(starts) > 0:
            raise _IrregularError
        self._columns = self._read_plain(starts, blobs_end)
        self.end = self._read_names(count, first_name)

    def mapping(self, frame: Frame, *, is_1_1: bool) -> RegularObjects:
        """Return the objects, each either plain or parsed by `v1.py`."""
        problems: list[Problem] = []
        others = {}
        for name, entry in self._others:
            tensor_object = v1.parse_object(name, entry, frame, problems, is_1_1=is_1_1)
            if tensor_object is None or name in others:
                raise _IrregularError
            others[name] = tensor_object
        columns = Columns(**self._columns)
        return RegularObjects(self._data, columns, others, self._order, is_1_1=is_1_1)

    def _read_plain(self, starts: Ints, blobs_end: int) -> dict[str, Any]:
        """Return the columns of those of the guessed objects that can be plain ones."""
        types = _Types()
        blocks = []
        dim_count = failed = 0
        for first in range(0, len(starts), _BLOCK):
            block = starts[first : first + _BLOCK]
            after = first + len(block)
            stop = int(starts[after]) if after < len(starts) else len(self._data)
            columns = _read_block(Lanes(self._data, block, stop), types, blobs_end)
            columns["starts"] = block
            columns["dim_starts"] += dim_count
            dim_count += len(columns["dims"])
            failed += len(block) - int(np.count_nonzero(columns["ok"]))
            if failed > 2 * self._few:
                raise _IrregularError
            blocks.append(columns)
        whole: dict[str, Any] = {
            key: np.concatenate([columns[key] for columns in blocks]) for key in blocks[0]
        }
        ok = whole.pop("ok")
        if failed:
            whole = {
                key: column if key == "dims" else column[ok] for key, column in whole.items()
            }
        return {**whole, "spellings": types.spellings}

    def _read_names(self, count: int, first_name: int) -> int:
        """Read the names and the objects that are not plain, and return where the last one ends.

        A name has to end exactly where its object begins. Where it does not, other objects lie
        between, or the guess was wrong and the walk there fails.
        """
        starts, ends = self._columns.pop("starts"), self._columns.pop("ends")
        name_starts = np.roll(self._columns.pop("next_names"), 1)
        name_stops = np.roll(self._columns.pop("next_stops"), 1)
        name_stops[:1] = -1
        gaps = np.flatnonzero(name_stops != starts)
        name_starts[gaps] = starts[gaps]
        names = _texts(self._data, name_starts, starts)
        order: list[str] = []
        done = 0
        for row in gaps.tolist():
            ...
