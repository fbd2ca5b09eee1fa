"""The root of a divided checkpoint: a file of ours whose objects are the columns of a table.

Its attributes say little: versions, kinds of tensors, files. What there is one of for each tensor
or chunk is a column, compressed, as a million lists in a manifest would take seconds and gigabytes.
Values that are no tensors are kept as a tree (`ztensor/tree/`); nothing is pickled.

Attributes, beneath `divided`:

    version     1
    writer      what wrote it, such as "torch"
    kinds       [storage type, logical type or "", layout] of tensors
    encodings   of chunks: "raw", "zstd", or "object" for one whose file tells more
    algorithm   of the digests of chunks, or ""
    files       {names, sizes, digests of their manifests}, a list each

Objects, a row for each tensor (`tensors/...`) or chunk (`chunks/...`), all unsigned integers:

    tensors/names, name_lengths      UTF-8 one behind the other, and bytes of each
    tensors/kind, rank, shape        shapes one behind the other
    chunks/tensor, file              numbers; the rows are in the order of the tensors
    chunks/object, encoding          left out where all are 0
    chunks/offsets, sizes            boxes one behind the other
    chunks/at, length                where the bytes lie in the file
    chunks/digest, content           digests over stored and decoded bytes; may be left out
    values, values/...               the shape of the tree of values, and its arrays
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.boundary import public
from ztensor.chunks.table import ChunkTable, Kind, TableFile, broken
from ztensor.contents import open_file
from ztensor.digest import ALGORITHMS
from ztensor.divided.place import ATTRIBUTE, Place, opener, require_plain
from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    UnsupportedVersionError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.frameworks import tree_adapter
from ztensor.limits import Budget
from ztensor.locks import cached_property
from ztensor.sharded.naming import ROOT
from ztensor.tree.decode import decode
from ztensor.tree.encode import encode
from ztensor.tree.kinds import MAKERS, Made
from ztensor.writing.creating import create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ztensor.limits import Limits
    from ztensor.model.manifest import Manifest
    from ztensor.reading.file import FileObjects
    from ztensor.source.sink import Durable, Sink
    from ztensor.tree.decode import LeafAt
    from ztensor.typing import Path

    Array = np.ndarray[Any, Any]

VERSION = 1
_VALUES = "values"
# Among the values: where in a nested state each name belongs, and what the boxes of a process are
# of that was alone. No name of a state has this form.
PATHS = "\x1fpaths"
BOXES = "\x1fboxes"
# Among the values, and an attribute of a file: what makes it a step of a run, with its metrics.
STEP = "checkpoint"
_CONTENT_BYTES = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """What the root of a divided checkpoint says; nothing is made for each chunk.

    Attributes:
        table: the tensors, and the chunks they are in.
        writer: what wrote it, such as `"torch"`; "" where it does not say.
    """

    table: ChunkTable
    writer: str
    _values: Callable[..., Mapping[str, Any]] | None = dataclasses.field(repr=False, default=None)

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the tensors."""
        return self.table.names

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Return the whole shape of each tensor."""
        return self.table.shapes

    @cached_property
    def dtypes(self) -> Sequence[str]:
        """Return the storage type of each tensor, such as `"f32"`."""
        return [self.table.kinds[number].dtype for number in self.table.kind.tolist()]

    @cached_property
    def types(self) -> Sequence[str | None]:
        """Return the logical type of each tensor, such as `"bf16"`, or None."""
        return [self.table.kinds[number].type for number in self.table.kind.tolist()]

    @cached_property
    def layouts(self) -> Sequence[str]:
        """Return the layout of each tensor, such as `"dense"`."""
        return [self.table.kinds[number].format for number in self.table.kind.tolist()]

    @property
    def files(self) -> Sequence[TableFile]:
        """Return the files of the processes: name, size, and digest of the manifest."""
        return self.table.files

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Return the values that are no tensors, by their names; read when first asked for.

        Raises:
            FormatError: what the root says of them is damaged.
            LimitError: a safety cap is exceeded.
        """
        return values_as(self, None)

    @property
    def has_values(self) -> bool:
        """Return whether there is anything beside the tensors."""
        return self._values is not None


def values_kept(root: Root, leaf: Callable[[str, str], object]) -> Mapping[str, Any]:
    """Return the values as a tree is encoded of them: what is made of others stays told.

    Args:
        root: what a checkpoint has.
        leaf: gives what stands for an array, by its name and its framework.

    Raises:
        ZTensorError: as for `Root.values`.
    """
    if root._values is None:
        return {}
    return root._values(lambda _, at: leaf(at.name, at.framework), (), _kept)


def _kept(name: str) -> Callable[[Any], Made]:
    return functools.partial(Made, name)


@public
def read_root(folder: Path, *, limits: Limits | None = None, storage: object = None) -> Root:
    """Return what the root of a divided checkpoint says, every claim of it checked.

    Args:
        folder: the folder or the URL of the prefix, or the root in it.
        limits: safety caps; `ztensor.Limits()` by default.
        storage: how the store of a URL is opened; see `ztensor.open`.

    Raises:
        FormatError: the root is damaged, or its chunks cannot be those of its tensors.
        UsageError: the file is the root of no divided checkpoint.
        UnsupportedVersionError: a newer release wrote it.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    place = Place(folder, storage)
    file = open_root(place, limits=limits)
    try:
        if not is_root(file):
            raise UsageError("the file is the root of no divided checkpoint", file=file.name)
        root = parse_root(file)
        root.values  # noqa: B018  # the file is closed behind this
    finally:
        file.close()
    return root


def open_root(
    place: Place, *, verify: bool | None = None, limits: Limits | None = None
) -> FileObjects:
    """Open the root of a checkpoint as the file it is.

    Raises:
        ZTensorError: what `read_root` raises.
    """
    return open_file(opener(place.target(ROOT)), verify=verify, mmap=False, limits=limits)


def is_root(file: FileObjects) -> bool:
    """Return whether a file is the root of a divided checkpoint."""
    return file.format == "zt" and says_root(file.manifest)


def says_root(manifest: Manifest) -> bool:
    """Return whether a file of ours says that it is the root of a divided checkpoint."""
    told = (manifest.attributes or {}).get(ATTRIBUTE)
    return isinstance(told, Mapping) and "version" in told


# --- Reading --------------------------------------------------------------------------------


def values_as(root: Root, framework: str | None, types: Iterable[type] = ()) -> Mapping[str, Any]:
    """Return the values of an open root, with those of a framework as they were.

    Args:
        root: what `parse_root` gave, of a file that is open.
        framework: its name in `ztensor.frameworks`; None gives NumPy's arrays for all.
        types: classes of namedtuples, dataclasses and enums; see `ztensor.load_tree`.

    Raises:
        ZTensorError: as for `Root.values`, and what `ztensor.load_tree` raises for classes.
    """
    if root._values is None:
        return {}
    home = None if framework is None else tree_adapter(framework)
    own = {} if home is None else home.tree_makers()

    def leaf(file: FileObjects, at: LeafAt) -> object:
        value = file.value(f"{_VALUES}/{at.name}", copy=True)
        return home.tree_leaf(value) if home is not None and at.framework == framework else value

    return root._values(leaf, types, lambda name: own.get(name) or MAKERS.get(name))


def parse_root(file: FileObjects) -> Root:
    """Return what the root says, every claim checked.

    Args:
        file: the open root; values are read of it when they are asked for.

    Raises:
        ZTensorError: what `read_root` raises.
    """
    try:
        return _Parser(file).root()
    except ZTensorError as error:
        error.locate(file=file.name)
        raise


class _Parser:
    """Reads the columns of a root, and charges what they take before they are read."""

    def __init__(self, file: FileObjects) -> None:
        self._file = file
        self._budget = Budget(file.limits, file.nbytes)
        told = file.attributes.get(ATTRIBUTE)
        self._told: Mapping[str, Any] = told if isinstance(told, Mapping) else {}

    def root(self) -> Root:
        version = self._told.get("version")
        if type(version) is not int or version < 1:
            raise broken("the root has no version", found=describe(version))
        if version > VERSION:
            raise UnsupportedVersionError(
                "a newer release wrote the divided checkpoint",
                reason=Reason.UNKNOWN_VERSION,
                expected=f"version {VERSION}",
                found=str(version),
            )
        table = self._table()
        table.require_valid()
        values = None
        if _VALUES in self._file.names:
            values = functools.partial(_values_of, self._file, self._budget)
        return Root(table, self._text("writer"), values)

    def _table(self) -> ChunkTable:
        kinds = [self._kind(one) for one in self._list("kinds")]
        ranks = self._column("tensors/rank", most=self._file.limits.rank)
        names = self._names(len(ranks))
        kind = self._column("tensors/kind", len(ranks), most=len(kinds) - 1)
        tensor = self._column("chunks/tensor", most=len(ranks) - 1)
        count = len(tensor)
        axes = sum(  # not all at once: few bytes may be very many rows
            int(ranks[tensor[start : start + _BATCH]].sum(dtype=np.int64))
            for start in range(0, count, _BATCH)
        )
        algorithm = self._text("algorithm")
        if algorithm and algorithm not in ALGORITHMS:
            raise broken("the digests are of an unknown kind", found=describe(algorithm))
        width = ALGORITHMS[algorithm].digits // 2 if algorithm else 0
        encodings = [one if isinstance(one, str) else "" for one in self._list("encodings")]
        return ChunkTable(
            names=names,
            kinds=kinds,
            kind=kind,
            shapes=self._shapes(ranks),
            files=self._files(),
            encodings=encodings,
            tensor=tensor,
            file=self._column("chunks/file", count),
            number=self._column("chunks/object", count, optional=True),
            encoding=self._column("chunks/encoding", count, most=len(encodings) - 1, optional=True),
            offsets=self._column("chunks/offsets", axes),
            sizes=self._column("chunks/sizes", axes),
            at=self._column("chunks/at", count),
            length=self._column("chunks/length", count),
            digest=self._bytes("chunks/digest", count, width) if width else None,
            algorithm=algorithm,
            content=self._bytes("chunks/content", count, _CONTENT_BYTES),
        )

    # --- Attributes -------------------------------------------------------------------------

    def _text(self, key: str) -> str:
        text = self._told.get(key, "")
        if not isinstance(text, str):
            raise broken(f"{key!r} is no text", found=describe(text))
        return text

    def _list(self, key: str, within: Mapping[str, Any] | None = None) -> list[Any]:
        found = (self._told if within is None else within).get(key)
        if not isinstance(found, list):
            raise broken(f"{key!r} is no list", found=describe(found))
        return found

    def _kind(self, told: object) -> Kind:
        if (
            not isinstance(told, list)
            or len(told) != 3
            or not all(isinstance(one, str) for one in told)
        ):
            raise broken("a kind of tensors is malformed", found=describe(told))
        return Kind(told[0], told[1] or None, told[2])

    def _files(self) -> list[TableFile]:
        told = self._told.get("files")
        if not isinstance(told, Mapping):
            raise broken("'files' is no map", found=describe(told))
        names, sizes = self._list("names", told), self._list("sizes", told)
        digests = self._list("digests", told)
        if not len(names) == len(sizes) == len(digests):
            raise broken("the files have more names than sizes or digests, or fewer")
        if len(set(map(require_plain, names))) < len(names):
            raise broken("the root names one file twice")
        if any(type(size) is not int or not 0 <= size < 1 << 62 for size in sizes):
            raise broken("a file has no size")
        if not all(isinstance(digest, str) for digest in digests):
            raise broken("a file has no digest")
        return list(itertools.starmap(TableFile, zip(names, sizes, digests, strict=True)))

    # --- Columns ----------------------------------------------------------------------------

    def _column(
        self,
        name: str,
        count: int | None = None,
        *,
        most: int | None = None,
        optional: bool = False,
    ) -> Any:
        """Return a column of whole numbers that are not negative."""
        found = self._file.manifest.objects.get(name)
        if found is None:
            if optional:
                return None
            raise broken("the root lacks a column", found=describe(name))
        data = found.components.get("data")
        is_known = found.format == "dense" and len(found.shape) == 1 and data is not None
        if not is_known or data is None or data.type is not None or data.dtype not in _INTEGERS:
            raise broken(f"{name!r} is no column of integers", found=describe(found.shape))
        length = found.shape[0]
        if count is not None and length != count:
            raise broken(
                f"{name!r} is too long or too short", expected=str(count), found=str(length)
            )
        self._budget.charge_bytes(length * _INTEGERS[data.dtype])
        array = self._file.array(name, copy=True)
        if len(array):
            if array.dtype.kind == "i" and int(array.min()) < 0:
                raise broken(f"{name!r} has a negative number", found=str(int(array.min())))
            top = int(array.max())
            if top > (1 << 62 if most is None else most):
                raise broken(
                    f"{name!r} has a number that is too large",
                    expected=f"at most {1 << 62 if most is None else most}",
                    found=str(top),
                )
        return array

    def _bytes(self, name: str, count: int, width: int) -> Any:
        flat = self._column(name, count * width, optional=True)
        if flat is None:
            return None
        if flat.dtype != np.uint8:
            raise broken(f"{name!r} has no bytes", found=flat.dtype.name)
        return flat.reshape(count, width)

    def _names(self, count: int) -> list[str]:
        lengths = self._column("tensors/name_lengths", count).astype(np.int64)
        text = self._column("tensors/names")
        if int(lengths.sum(dtype=np.float64)) != len(text) or text.dtype != np.uint8:
            raise broken("the names are too long or too short")
        self._budget.charge_bytes(_NAME_COST * count + len(text))
        self._budget.charge_steps(count)
        whole = text.tobytes()
        ends = np.cumsum(lengths).tolist()
        try:
            names = [whole[start:end].decode() for start, end in itertools.pairwise([0, *ends])]
        except UnicodeDecodeError as error:
            raise FormatError("a name is no text in UTF-8", reason=Reason.CBOR_UTF8) from error
        if len(set(names)) < count:
            raise broken("two tensors have one name")
        return names

    def _shapes(self, ranks: Array) -> list[tuple[int, ...]]:
        counts = ranks.astype(np.int64)
        flat = self._column("tensors/shape", int(counts.sum()))
        self._budget.charge_bytes(_NAME_COST * len(ranks) + 32 * len(flat))
        numbers = flat.tolist()
        ends = np.cumsum(counts).tolist()
        return [tuple(numbers[start:end]) for start, end in itertools.pairwise([0, *ends])]


_BATCH = 1 << 20
_NAME_COST = 120  # bytes of memory that a name and its place take, or a shape
_INTEGERS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def _values_of(
    file: FileObjects,
    budget: Budget,
    leaf: Callable[[FileObjects, LeafAt], object],
    types: Iterable[type],
    maker_of: Callable[[str], Callable[[Any], Any] | None],
) -> Mapping[str, Any]:
    stored = file.object(_VALUES).components["data"].length
    if file.object(_VALUES).shape[:1] > (file.limits.manifest_bytes,):
        raise LimitError(
            "the values are longer than Limits.manifest_bytes", reason=Reason.LIMIT_MANIFEST
        )
    shape = file.array(_VALUES, copy=True)
    names = set(value_arrays(file))

    def there(at: LeafAt) -> object:
        if at.name not in names:
            raise broken("the root lacks an array of its values", found=describe(at.name))
        return leaf(file, at)

    decoded = decode(shape.tobytes(), budget, there, stored=stored, types=types, maker_of=maker_of)
    tree = decoded.tree
    if not isinstance(tree, dict) or not all(isinstance(name, str) for name in tree):
        raise broken("the values have no names", found=describe(tree))
    return tree


def value_arrays(file: FileObjects) -> dict[str, str]:
    """Return the arrays of the values: their names, and what they are called in the root."""
    start = f"{_VALUES}/"
    return {name.removeprefix(start): name for name in file.names if name.startswith(start)}


# --- Writing --------------------------------------------------------------------------------


def encode_values(values: Mapping[str, object]) -> Any:
    """Return the tree of values as it is written.

    Raises:
        NotRepresentableError: a value that no file can hold; the message has its place.
        UsageError: a name is no text.
    """
    for name in values:
        if not isinstance(name, str):
            raise UsageError("a value's name is text", found=describe(name))
    return encode(dict(values))


def write_root(
    sink: Sink, table: ChunkTable, values: Any, writer: str, *, durable: Durable = "auto"
) -> None:
    """Write the root, and put it in place.

    Args:
        sink: where it goes; it appears as a whole.
        table: what is in the checkpoint.
        values: what `encode_values` gave.
        writer: what writes it.
        durable: what the sink was made with.

    Raises:
        SourceError: it could not be written; what was there before still is.
    """
    told = {
        "version": VERSION,
        "writer": writer,
        "kinds": [[kind.dtype, kind.type or "", kind.format] for kind in table.kinds],
        "encodings": list(table.encodings),
        "algorithm": table.algorithm,
        "files": {
            "names": [file.name for file in table.files],
            "sizes": [file.size for file in table.files],
            "digests": [file.digest for file in table.files],
        },
    }
    output = create(sink, compression=True, attributes={ATTRIBUTE: told}, durable=durable)
    with output:
        for name, column in columns_of(table).items():
            output.write(name, column)
        if values.leaves or values.shape != encode({}).shape:
            output.write(_VALUES, np.frombuffer(values.shape, np.uint8))
            for name, leaf in values.leaves.items():
                output.write(f"{_VALUES}/{name}", leaf)


def columns_of(table: ChunkTable) -> dict[str, Array]:
    """Return the columns of a table as they are stored: in the shortest type that holds them."""
    encoded = [name.encode() for name in table.names]
    shapes = list(itertools.chain.from_iterable(table.shapes))
    columns: dict[str, Any] = {
        "tensors/names": np.frombuffer(b"".join(encoded), np.uint8),
        "tensors/name_lengths": np.array([len(name) for name in encoded], np.int64),
        "tensors/kind": table.kind,
        "tensors/rank": table.ranks,
        "tensors/shape": np.array(shapes, np.int64),
        "chunks/tensor": table.tensor,
        "chunks/file": table.file,
        "chunks/object": table.number,
        "chunks/encoding": table.encoding,
        "chunks/offsets": table.offsets,
        "chunks/sizes": table.sizes,
        "chunks/at": table.at,
        "chunks/length": table.length,
        "chunks/digest": None if table.digest is None else table.digest.reshape(-1),
        "chunks/content": None if table.content is None else table.content.reshape(-1),
    }
    return {name: _shortest(one) for name, one in columns.items() if one is not None}


def _shortest(column: Array) -> Array:
    top = int(column.max()) if len(column) else 0
    for dtype in (np.uint8, np.uint16, np.uint32):
        if top <= np.iinfo(dtype).max:
            return column.astype(dtype)
    return column.astype(np.uint64)
