"""What `.metadata` says, checked and kept as columns: tensors, their boxes, and where each lies."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.foreign.dcp.vocabulary import Record
from ztensor.foreign.pt.pickled import Items, misfit
from ztensor.foreign.pt.values import ElementType, counts, element_type_of
from ztensor.model.account import Tally
from ztensor.source.beneath import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ztensor.limits import Budget

    Array = NDArray[Any]

# Bytes of memory: of a tensor with its encoding, of a chunk beside its axes, of a place while it is
# looked for, of a value, of an offset that is known.
_TENSOR_COST, _CHUNK_COST, _AXIS_COST, _PLACE_COST, _VALUE_COST = 1200, 64, 16, 260, 300
_KNOWN_COST = 240
_FIELDS = frozenset(
    ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version")
)
_NO_PLACE = -1
_PLACE_STEPS = 8  # of a chunk, and of its place


class Form(enum.IntEnum):
    """What lies at a place."""

    RECORD = 0  # as `torch.save` writes it
    CHANGED = 1  # one that went through an extension of the writer
    ELEMENTS = 2  # the elements alone, in C's order


class Place(NamedTuple):
    """Where something lies.

    Attributes:
        file: the number of the file.
        at: its first byte there.
        length: how many bytes.
        form: what is there.
    """

    file: int
    at: int
    length: int
    form: Form = Form.RECORD


class Wrong(NamedTuple):
    """What is wrong with a tensor, so that it is listed and cannot be read.

    Attributes:
        message: a sentence.
        expected: what was expected.
        found: what is there.
        reason: the code.
    """

    message: str
    expected: str | None = None
    found: str | None = None
    reason: Reason = Reason.SHARD_INDEX

    def error(self) -> FormatError | UnsupportedError:
        """Return it as an error."""
        kind = UnsupportedError if self.reason is Reason.UNKNOWN_ENCODING else FormatError
        return kind(self.message, reason=self.reason, expected=self.expected, found=self.found)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A tensor.

    Attributes:
        element: the type of its elements.
        size: its shape, in torch's elements.
        first: the first row of its chunks.
        count: how many chunks it has.
        axis: where the axes of the first are in the flat columns.
        wrong: why it cannot be read, or None.
    """

    element: ElementType
    size: tuple[int, ...]
    first: int
    count: int
    axis: int
    wrong: Wrong | None


class Table:
    """The tensors and values of a checkpoint.

    Attributes:
        files: names of the files, each as the parts of a path beneath the folder.
        ends: of each file how many bytes of it are needed.
        taken: of each file how many bytes are said to be of something.
        last: of each file where the last thing in it begins.
        tensors: by name.
        values: what is no tensor, by name: where it lies, or None where nothing tells.
        version: that of the format.
    """

    def __init__(self) -> None:
        self.files: list[tuple[str, ...]] = []
        self.ends: list[int] = []
        self.taken: list[int] = []
        self.last: list[int] = []
        self.tensors: dict[str, Entry] = {}
        self.values: dict[str, Place | None] = {}
        self.version = ""
        self._offsets, self._sizes = array("q"), array("q")
        self._columns = tuple(array("q") for _ in Place._fields)

    def add_file(self, parts: tuple[str, ...], taken: int) -> int:
        """Add a file of which so many bytes are known, and return its number."""
        self.files.append(parts)
        self.ends.append(taken)
        self.taken.append(taken)
        self.last.append(0)
        return len(self.files) - 1

    def add(
        self,
        name: str,
        element: ElementType,
        size: tuple[int, ...],
        chunks: Sequence[tuple[tuple[int, ...], tuple[int, ...], Place | None]],
        wrong: Wrong | None = None,
    ) -> None:
        """Add a tensor, and its chunks: where each begins, how long it is, where it lies."""
        first, axis = len(self._columns[0]), len(self._offsets)
        for offsets, sizes, _ in chunks:
            self._offsets.extend(offsets)
            self._sizes.extend(sizes)
        places = [place or (_NO_PLACE, 0, 0, 0) for _, _, place in chunks]
        for column, numbers in zip(self._columns, zip(*places, strict=True), strict=False):
            column.extend(numbers)
        self.tensors[name] = Entry(element, size, first, len(chunks), axis, wrong)

    def boxes(self, entry: Entry) -> tuple[Array, Array]:
        """Return where the chunks of a tensor begin, and how long they are: (chunks, axes) each."""
        shape = entry.count, len(entry.size)
        axes = slice(entry.axis, entry.axis + entry.count * len(entry.size))
        offsets, sizes = (
            np.array(column[axes], np.int64).reshape(shape)
            for column in (self._offsets, self._sizes)
        )
        return offsets, sizes

    def place(self, entry: Entry, chunk: int) -> Place | None:
        """Return where a chunk of a tensor lies, None where nothing tells."""
        file, at, length, form = (column[entry.first + chunk] for column in self._columns)
        return None if file == _NO_PLACE else Place(file, at, length, Form(form))

    def every_place(self) -> Array:
        """Return where all chunks and values lie that lie anywhere: (places, 3) int64 numbers.

        A row has the number of the file, the first byte and how many.
        """
        chunks = np.stack([np.array(one, np.int64) for one in self._columns[:3]], axis=1)
        others = [place[:3] for place in self.values.values() if place is not None]
        values = np.array(others, np.int64).reshape(-1, 3)
        found: Array = np.concatenate((chunks[chunks[:, 0] >= 0], values))
        return found


def read_table(value: object, budget: Budget, left: Tally) -> Table:
    """Return the table that the value of a pickle `.metadata` says.

    Args:
        value: the pickle's value.
        budget: what listing may cost.
        left: where what is not given is counted.

    Raises:
        FormatError: it is none, or names a file outside its folder.
        LimitError: it is far larger than its bytes.
    """
    root = _record(value, "Metadata", "MCoreMetadata").fields()
    table = Table()
    version = root.get("version")
    table.version = version if isinstance(version, str) else ""
    places = _Places(table, root.get("storage_data"), budget)
    for name, stored in _items(root.get("state_dict_metadata"), "state_dict_metadata").pairs:
        if not isinstance(name, str):
            raise misfit("a name in .metadata", "text", name)
        if name in table.tensors or name in table.values:
            raise FormatError(
                "two tensors have one name", reason=Reason.DUPLICATE_NAME, found=describe(name)
            )
        kind = _record(stored, "TensorStorageMetadata", "BytesStorageMetadata")
        if kind.kind == "BytesStorageMetadata":
            budget.charge_bytes(_VALUE_COST)
            table.values[name] = places.find(name, None)
        else:
            _add_tensor(table, name, kind.fields(), places, budget)
    for name, other in root.items():
        if name not in _FIELDS and other is not None:
            left.add("field of .metadata", name)
    _tally_names(root.get("planner_data"), left, budget)
    return table


class _Axes:
    """Tuples of numbers along axes, checked, with their texts: one that is there often only once.

    Those that are looked up have to live as long as this.

    Args:
        budget: what listing may cost.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[int, tuple[tuple[int, ...], str]] = {}

    def of(self, value: object, what: str) -> tuple[tuple[int, ...], str]:
        """Return the numbers, and their text.

        Raises:
            FormatError: they are none.
        """
        found = self._known.get(id(value))
        if found is None:
            numbers = counts(value, what)
            self._budget.charge_bytes(_KNOWN_COST + _AXIS_COST * len(numbers))
            found = self._known[id(value)] = numbers, f"{numbers}"
        return found


class _Places:
    """Where everything lies, by name and offset.

    Keys are texts, as numbers of a file could be chosen to have equal hashes, and have the number
    of a name in its place, as a long one may be there very often.

    Args:
        table: where the files are added.
        storage: what the pickle says.
        budget: what listing may cost.

    Attributes:
        axes: offsets and sizes.
    """

    def __init__(self, table: Table, storage: object, budget: Budget) -> None:
        self.axes = _Axes(budget)
        self._numbers: dict[str, int] = {}
        self._found: dict[str, Place] = {}
        files: dict[str, int] = {}
        pairs = () if storage is None else _items(storage, "storage_data").pairs
        for index, stored in pairs:
            budget.charge_steps(_PLACE_STEPS)
            named = _record(index, "MetadataIndex").fields()
            info = _record(stored, "_StorageInfo").fields()
            name, offset = named.get("fqn"), named.get("offset")
            path = info.get("relative_path")
            if not isinstance(name, str) or not isinstance(path, str):
                raise misfit("a name in .metadata", "text", path if isinstance(name, str) else name)
            at, length = counts((info.get("offset"), info.get("length")), "the place of a chunk")
            file = files.get(path)
            if file is None:
                budget.charge_bytes(_VALUE_COST + 2 * sys.getsizeof(path))
                file = files[path] = table.add_file(parts_of(path), 0)
            table.ends[file] = max(table.ends[file], at + length)
            table.last[file] = max(table.last[file], at)
            table.taken[file] += length
            number = self._numbers.setdefault(name, len(self._numbers))
            text = None if offset is None else self.axes.of(offset, "the offset of a chunk")[1]
            key = _key(number, text)
            budget.charge_bytes(_PLACE_COST + len(key))
            if key in self._found:
                raise FormatError(
                    "a chunk is said to lie in two places",
                    reason=Reason.DUPLICATE_NAME,
                    found=describe(name),
                )
            form = Form.CHANGED if info.get("transform_descriptors") else Form.RECORD
            self._found[key] = Place(file, at, length, form)

    def find(self, name: str, offset: str | None) -> Place | None:
        """Return where a chunk of a tensor lies, or a value; None where nothing tells.

        Args:
            name: its name.
            offset: the text of where the chunk begins, None for a value.
        """
        number = self._numbers.get(name)
        return None if number is None else self._found.get(_key(number, offset))


def _key(number: int, offset: str | None) -> str:
    return f"{number}" if offset is None else f"{number} {offset}"


def _add_tensor(
    table: Table,
    name: str,
    fields: Mapping[str, object],
    places: _Places,
    budget: Budget,
) -> None:
    size = counts(fields.get("size"), "the size of a tensor")
    chunks = fields.get("chunks")
    if not isinstance(chunks, list):
        raise misfit("the chunks of a tensor", "a list", chunks)
    budget.charge_steps(len(chunks) * (_PLACE_STEPS + len(size)))
    cost = _CHUNK_COST + _AXIS_COST * len(size)
    budget.charge_bytes(_TENSOR_COST + len(chunks) * cost)
    element, wrong = _element(fields.get("properties"))
    found: list[tuple[tuple[int, ...], tuple[int, ...], Place | None]] = []
    seen: set[str] = set()
    for chunk in chunks:
        box = _record(chunk, "ChunkStorageMetadata").fields()
        offsets, begin = places.axes.of(box.get("offsets"), "the offset of a chunk")
        sizes, length = places.axes.of(box.get("sizes"), "the size of a chunk")
        if len(offsets) != len(size) or len(sizes) != len(size):
            raise misfit(
                "a chunk in .metadata", f"{len(size)} axes", f"{offsets}, {sizes}", is_type=False
            )
        if 0 in sizes and size:
            continue  # a process that holds nothing of it
        key = f"{begin} {length}"
        if key in seen:
            continue  # of a tensor that several processes hold
        seen.add(key)
        place = places.find(name, begin)
        if place is None and len(chunks) == 1:
            place = places.find(name, None)
        found.append((offsets, sizes, place))
    table.add(name, element, size, found, wrong)


def _element(properties: object) -> tuple[ElementType, Wrong | None]:
    """Return the type of a tensor's elements, and why that is no known one."""
    state = _record(properties, "TensorProperties").state
    dtype: object = None
    if isinstance(state, tuple) and state:
        dtype = state[0]
    elif isinstance(state, Items):
        some = itertools.islice(state.pairs, 8)
        dtype = next((value for key, value in some if key == "dtype"), None)
    try:
        return element_type_of(dtype)[1], None
    except UnsupportedError as error:
        word = describe(str(dtype), 60)
        return ElementType(word, None, 0), Wrong(
            error.message, error.expected, error.found, Reason.UNKNOWN_ENCODING
        )


def _tally_names(planner_data: object, left: Tally, budget: Budget) -> None:
    """Count names whose keys are no text: those of nested dicts are joined by dots, as ours."""
    if planner_data is None:
        return
    if not isinstance(planner_data, Items):
        left.add("field of .metadata", "planner_data")
        return
    budget.charge_steps(len(planner_data))
    for name, path in planner_data.pairs:
        if not isinstance(path, (tuple, list)) or not isinstance(name, str):
            left.add("field of .metadata", "planner_data")
            return
        if len(path) > 64:
            left.add("path of a name", name)
        elif any(not isinstance(key, (str, int)) for key in path):
            left.add("dict key that is no text", name)


def _record(value: object, *kinds: str) -> Record:
    if not isinstance(value, Record) or value.kind not in kinds:
        found = value.kind if isinstance(value, Record) else value
        raise misfit("a record in .metadata", " or ".join(kinds), found)
    return value


def _items(value: object, what: str) -> Items:
    if not isinstance(value, Items):
        raise misfit(f"the field {what}", "a dict", value)
    return value
