"""Read and write the root of a distributed checkpoint: a zTensor file of columns.

Its attributes are versions, kinds of tensors, and files. Everything that each tensor or chunk has
is a compressed column, since a million lists in a manifest would take seconds and gigabytes. Values
beside the tensors are stored as a tree (`ztensor/training/tree/`); nothing is pickled.

Attributes, in `divided`:

    version     1
    writer      library that wrote it, such as "torch"
    kinds       [storage type, logical type or "", layout] of tensors
    encodings   of chunks: "raw", "zstd", or "object" if the manifest of the part has the components
    algorithm   of the digests of chunks, or ""
    files       {names, sizes, digests of their manifests}, a list each
    save        id of the save; optional
    processes   number of processes that wrote it; optional

Objects, a row for each tensor (`tensors/...`) or chunk (`chunks/...`), all unsigned integers:

    tensors/names, name_lengths      concatenated UTF-8, and the bytes of each
    tensors/kind, rank, shape        concatenated shapes
    chunks/tensor, file              indices; the rows are in the order of the tensors
    chunks/object, encoding          optional if all are 0
    chunks/offsets, sizes            concatenated boxes
    chunks/at, length                offset and number of the bytes in the file
    chunks/digest, content           digests of stored and decoded bytes; optional
    values, values/...               the shape of the tree of values, and its arrays
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import Writer
from ztensor.distributed.chunks.table import ChunkTable, TableFile, broken
from ztensor.distributed.columns import CONTENT_BYTES, Columns, columns_of, kinds_of, listed_kinds
from ztensor.distributed.place import ATTRIBUTE, ROOT, Place, opener, require_plain
from ztensor.distributed.saves import Save, save_of
from ztensor.errors import (
    LimitError,
    Reason,
    SourceNotFoundError,
    UnsupportedVersionError,
    UsageError,
    describe,
)
from ztensor.ext import (
    ALGORITHMS,
    FORMATS,
    AttributeKind,
    FileObjects,
    Sink,
    cached_property,
    foreign_bytes,
    open_file,
)
from ztensor.limits import Budget, Limits
from ztensor.training import tree
from ztensor.typing import Durable, Path, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO

    Array = np.ndarray[Any, Any]

VERSION = 1
_VALUES = "values"
# Among the values: the path of each name in the nested state, the boxes of a process that saved
# without collectives, and the save id of torch's writer. No name of a state has this form.
PATHS = "\x1fpaths"
BOXES = "\x1fboxes"
SAVE_ID = "\x1fsave_id"
# A value, or an attribute of a single file: step and metrics of a run.
STEP = "checkpoint"


@dataclasses.dataclass(frozen=True, eq=False)
class Root:
    """The contents of the root of a distributed checkpoint; no object is made for a chunk.

    Attributes:
        table: the tensors and their chunks.
        writer: library that wrote it, such as `"torch"`, or "".
        save_id: id of its save, or None.
        processes: number of processes that wrote the save, or None.
    """

    table: ChunkTable
    writer: str
    _values: Callable[..., Mapping[str, Any]] | None = dataclasses.field(repr=False, default=None)
    save_id: str | None = None
    processes: int | None = None

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
        """Return the values beside the tensors by name; read on first access.

        Raises:
            FormatError: they are damaged.
            LimitError: a safety cap is exceeded.
        """
        return values_as(self, None)

    @property
    def has_values(self) -> bool:
        """Return whether there are values beside the tensors."""
        return self._values is not None


def values_kept(root: Root, called: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the values ready to be encoded as a tree; values of frameworks stay encoded.

    Args:
        root: the root.
        called: the new names of the arrays by their names.

    Raises:
        ZTensorError: as for `Root.values`.
    """
    if root._values is None:
        return {}
    return root._values(lambda _, name: called[name], tree.decode_kept)


def read_root(
    folder: Path, *, limits: Limits | None = None, storage: Storage | None = None
) -> Root:
    """Return the root of a distributed checkpoint, fully checked.

    Args:
        folder: the folder or the URL of the prefix, or the root in it.
        limits: safety caps; `ztensor.Limits()` by default.
        storage: see `ztensor.typing.OpenOptions`.

    Raises:
        FormatError: the root is damaged, or its chunks do not tile its tensors.
        UsageError: the file is not the root of a distributed checkpoint.
        UnsupportedVersionError: a newer release wrote it.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    place = Place(folder, storage)
    file = open_root(place, limits=limits)
    try:
        if not is_root(file):
            raise UsageError("the file is not the root of a distributed checkpoint", file=file.name)
        root = parse_root(file)
        root.values  # noqa: B018  # the file is closed behind this
    finally:
        file.close()
    return root


def open_root(
    place: Place, *, verify: bool | None = None, limits: Limits | None = None
) -> FileObjects:
    """Open the root of a checkpoint as a plain file.

    Raises:
        ZTensorError: as `read_root` raises.
    """
    return open_file(opener(place.target(ROOT)), verify=verify, mmap=False, limits=limits)


def is_root(file: FileObjects) -> bool:
    """Return whether a file is the root of a distributed checkpoint."""
    return file.format == "zt" and _says_root((file.manifest.attributes or {}).get(ATTRIBUTE))


def _says_root(value: object) -> bool:
    return isinstance(value, Mapping) and "version" in value


class _RootKind(AttributeKind):
    """The attribute of roots and parts."""

    def require_changeable(self, value: object, file: str) -> None:
        """Raise if the file is a root."""
        if os.path.basename(file) == ROOT and _says_root(value):
            raise FORMATS.unchangeable(file, "the root of a distributed checkpoint")

    def require_whole(self, value: object, folder: str) -> None:
        """Raise: without a root, nothing says which parts belong together."""
        error = SourceNotFoundError(
            "the root of the distributed checkpoint is missing", file=folder + ROOT
        )
        error.hint = f"`ztensor repair {describe(folder, 200)}` makes it of the others"
        raise error


ROOT_KIND = _RootKind()

# --- Reading --------------------------------------------------------------------------------


def values_as(root: Root, framework: str | None, types: Iterable[type] = ()) -> Mapping[str, Any]:
    """Return the values of an open root, decoded for a framework.

    Args:
        root: result of `parse_root` of a file that is still open.
        framework: its name in `ztensor.io.frameworks`; None returns NumPy arrays.
        types: classes of namedtuples, dataclasses and enums; see `ztensor.load_tree`.

    Raises:
        ZTensorError: as for `Root.values`, and as `ztensor.load_tree` raises for classes.
    """
    if root._values is None:
        return {}
    return root._values(_array, functools.partial(tree.decode_as, framework=framework, types=types))


def _array(file: FileObjects, name: str) -> object:
    return file.value(f"{_VALUES}/{name}", copy=True)


def parse_root(file: FileObjects, *, is_part: bool = False) -> Root:
    """Parse and check an open root.

    Args:
        file: the open root; values are read from it on access.
        is_part: True if it has the chunks of one process, which need not tile the tensors.

    Raises:
        ZTensorError: as `read_root` raises.
    """
    with foreign_bytes("the root", file.name):
        return _Parser(file).root(is_part=is_part)


class _Parser:
    """Reads the columns of a root, and charges the budget before it does."""

    def __init__(self, file: FileObjects) -> None:
        self._file = file
        self._budget = Budget(file.limits, file.nbytes)
        self._columns = Columns(file, self._budget)
        attributes = file.attributes.get(ATTRIBUTE)
        self._attributes: Mapping[str, Any] = attributes if isinstance(attributes, Mapping) else {}

    def root(self, *, is_part: bool) -> Root:
        version = self._attributes.get("version")
        if type(version) is not int or version < 1:
            raise broken("the root has no version", found=describe(version))
        if version > VERSION:
            raise UnsupportedVersionError(
                "a newer release wrote the distributed checkpoint",
                reason=Reason.UNKNOWN_VERSION,
                expected=f"version {VERSION}",
                found=str(version),
            )
        table = self._table()
        if not is_part:
            with self._budget.lent(table.check_cost):
                table.require_valid()
        values = None
        if _VALUES in self._file.names:
            values = functools.partial(_values_of, self._file, self._budget)
        save = save_of(self._attributes)
        return Root(table, self._text("writer"), values, save.id, save.processes)

    def _table(self) -> ChunkTable:
        kinds = kinds_of(self._list("kinds"))
        ranks = self._columns.column("tensors/rank", most=self._file.limits.rank)
        names = self._columns.names(len(ranks))
        kind = self._columns.column("tensors/kind", len(ranks), most=len(kinds) - 1)
        tensor = self._columns.column("chunks/tensor", most=len(ranks) - 1)
        count = len(tensor)
        axes = sum(  # one by one: few bytes may decompress to many rows
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
            shapes=self._columns.shapes(ranks),
            files=self._files(),
            encodings=encodings,
            tensor=tensor,
            file=self._columns.column("chunks/file", count),
            number=self._columns.column("chunks/object", count, optional=True),
            encoding=self._columns.column(
                "chunks/encoding", count, most=len(encodings) - 1, optional=True
            ),
            offsets=self._columns.column("chunks/offsets", axes),
            sizes=self._columns.column("chunks/sizes", axes),
            at=self._columns.column("chunks/at", count),
            length=self._columns.column("chunks/length", count),
            digest=self._columns.bytes_of("chunks/digest", count, width) if width else None,
            algorithm=algorithm,
            content=self._columns.bytes_of("chunks/content", count, CONTENT_BYTES),
        )

    # --- Attributes -------------------------------------------------------------------------

    def _text(self, key: str) -> str:
        text = self._attributes.get(key, "")
        if not isinstance(text, str):
            raise broken(f"{key!r} is not text", found=describe(text))
        return text

    def _list(self, key: str, within: Mapping[str, Any] | None = None) -> list[Any]:
        value = (self._attributes if within is None else within).get(key)
        if not isinstance(value, list):
            raise broken(f"{key!r} is not a list", found=describe(value))
        return value

    def _files(self) -> list[TableFile]:
        listed = self._attributes.get("files")
        if not isinstance(listed, Mapping):
            raise broken("'files' is not a map", found=describe(listed))
        names, sizes = self._list("names", listed), self._list("sizes", listed)
        digests = self._list("digests", listed)
        if not len(names) == len(sizes) == len(digests):
            raise broken("the files have more names than sizes or digests, or fewer")
        if len(set(map(require_plain, names))) < len(names):
            raise broken("the root names one file twice")
        if any(type(size) is not int or not 0 <= size < 1 << 62 for size in sizes):
            raise broken("a file has no size")
        if not all(isinstance(digest, str) for digest in digests):
            raise broken("a file has no digest")
        return list(itertools.starmap(TableFile, zip(names, sizes, digests, strict=True)))


_BATCH = 1 << 20


def _values_of(
    file: FileObjects,
    budget: Budget,
    leaf: Callable[[FileObjects, str], object],
    decode: Callable[..., Any],
) -> Mapping[str, Any]:
    stored = file.object(_VALUES).components["data"].length
    if file.object(_VALUES).shape[:1] > (file.limits.manifest_bytes,):
        raise LimitError(
            "the values are longer than Limits.manifest_bytes", reason=Reason.LIMIT_MANIFEST
        )
    shape = file.array(_VALUES, copy=True)
    names = set(value_arrays(file))

    def there(name: str) -> object:
        if name not in names:
            raise broken("the root lacks an array of its values", found=describe(name))
        return leaf(file, name)

    values = decode(shape.tobytes(), budget, there, stored=stored)
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise broken("the values have no names", found=describe(values))
    return values


def value_arrays(file: FileObjects) -> dict[str, str]:
    """Return the object names of the arrays of values by their names."""
    start = f"{_VALUES}/"
    return {name.removeprefix(start): name for name in file.names if name.startswith(start)}


# --- Writing --------------------------------------------------------------------------------


def encode_values(values: Mapping[str, object]) -> Any:
    """Return values encoded as a tree.

    Raises:
        NotRepresentableError: a value that no file can hold; the message has its place.
        UsageError: a name is not text.
    """
    for name in values:
        if not isinstance(name, str):
            raise UsageError("the name of a value must be text", found=describe(name))
    return tree.encode(dict(values))


def write_root(
    sink: Sink | BinaryIO,
    table: ChunkTable,
    values: Any,
    writer: str,
    *,
    save: Save | None = None,
    durable: Durable = "auto",
) -> None:
    """Write the root, and put it in place.

    Args:
        sink: its target; a file appears atomically.
        table: the tensors and chunks.
        values: result of `encode_values`.
        writer: name of the calling library.
        save: the save.
        durable: as the sink was made.

    Raises:
        SourceError: writing failed; an earlier root is untouched.
    """
    attributes: dict[str, object] = {
        "version": VERSION,
        "writer": writer,
        "kinds": listed_kinds(table.kinds),
        "encodings": list(table.encodings),
        "algorithm": table.algorithm,
        "files": {
            "names": [file.name for file in table.files],
            "sizes": [file.size for file in table.files],
            "digests": [file.digest for file in table.files],
        },
    }
    if save is not None:
        attributes.update((key, one) for key, one in save.attributes().items() if one is not None)
    output = Writer(sink, compression=True, attributes={ATTRIBUTE: attributes}, durable=durable)
    with output:
        for name, column in columns_of(table).items():
            output.write(name, column)
        if values.leaves or values.shape != tree.encode({}).shape:
            output.write(_VALUES, np.frombuffer(values.shape, np.uint8))
            for name, leaf in values.leaves.items():
                output.write(f"{_VALUES}/{name}", leaf)
