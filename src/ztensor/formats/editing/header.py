"""The contract between the editor and the header of a format."""

from __future__ import annotations

import abc
import contextlib
import importlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ztensor.errors import FormatError, NotZTensorError, SourceError, UsageError, ZTensorError
from ztensor.ext import (
    FORMATS,
    Look,
    ObjectReader,
    Source,
    TensorObject,
    foreign_bytes,
    is_remote,
    path_text,
    source_of,
)
from ztensor.formats.parts import Part
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.typing import Path

_ITEM_COST = 1500  # bytes of memory of a tensor without its name


class Item(NamedTuple):
    """A tensor of the new file.

    Attributes:
        tensor: its shape, types and length.
        place: its offset in the old file, also if it replaces the tensor there; for a tensor that
            is added, the length of that file.
        part: the new bytes; None if they are in the old file.
    """

    tensor: TensorObject
    place: int
    part: Part | None = None

    @property
    def length(self) -> int:
        """Return its length in bytes."""
        return self.tensor.components["data"].length

    def is_end(self, size: int) -> bool:
        """Return whether it is in the old file, and ends at this offset."""
        return self.part is None and self.place + self.length == size


class Header(abc.ABC):
    """The header of a file: its tensors and key-value pairs, and the bytes of a changed one.

    Args:
        source: the file.
        budget: pays for parsing.
        are_checked: whether the places of tensors are checked, too; False is for repairs.

    Attributes:
        format: the format's name.
        attributes: the key-value pairs.
        objects: the tensors in the order of the header, each one component with its range.
        size: the length of the file.
        start: the offset of the first tensor.
        alignment: tensors begin at multiples of it, from the first one on.
        start_alignment: writers put the first tensor at a multiple of it, and readers do not ask.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: the file has content that an edit would lose.
        LimitError: a safety cap is exceeded.
    """

    format: str
    attributes: dict[str, Any]
    objects: Mapping[str, TensorObject]
    size: int
    start: int
    alignment: int
    start_alignment = 1

    @abc.abstractmethod
    def __init__(self, source: Source, budget: Budget, *, are_checked: bool = True) -> None:
        """Parse the header."""

    @abc.abstractmethod
    def set(self, key: str, value: object, kind: str | None) -> None:
        """Set a key-value pair.

        Args:
            key: the key.
            value: the value; None removes the key, which may be missing.
            kind: the type of the value; None keeps the old type, or takes one that fits.

        Raises:
            NotRepresentableError: the format cannot store the pair.
        """

    @abc.abstractmethod
    def require_name(self, name: str) -> None:
        """Raise if the format cannot store a tensor of this name.

        Raises:
            NotRepresentableError: the format reserves the name, or it is too long.
        """

    @abc.abstractmethod
    def written(
        self, reader: ObjectReader, lose: Callable[[str | None, str], None]
    ) -> list[tuple[TensorObject, Part]]:
        """Return the objects of a reader as tensors of the format, with where their bytes are.

        Args:
            reader: an open reader.
            lose: called with losses.
        """

    @abc.abstractmethod
    def ordered(self, items: Mapping[str, Item]) -> list[str]:
        """Return the names in the order of the data; `items` is in the order of the header."""

    @abc.abstractmethod
    def emit(self, items: Mapping[str, Item], offsets: Mapping[str, int]) -> bytes:
        """Return a header with the padding before the first tensor.

        Args:
            items: the tensors, in the order of the header.
            offsets: the place of each, from the first tensor on.

        Raises:
            NotRepresentableError: the header would be too long.
        """


def is_text(text: str) -> bool:
    """Return whether a text is Unicode, without lone surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def header_class(source: Source) -> type[Header]:
    """Return the class that parses the header of a file.

    Raises:
        UsageError: files of the format cannot be changed.
        NotZTensorError: the format is unknown.
    """
    look = Look(source)
    for name, format in FORMATS.usable():
        if format.is_recognised(look):
            if not format.editing:
                raise FORMATS.unchangeable(source.name, name)
            module: Any = importlib.import_module(format.editing)
            return module.HEADER  # type: ignore[no-any-return]
    raise NotZTensorError("no file of a format that can be changed", file=source.name)


def edited_format(path: Path) -> str | None:
    """Return the format of a file that `FormatEditor` can change.

    Returns:
        The name; for other files, and if the file is missing or cannot be read, None.
    """
    name = path_text(path)
    if is_remote(name):
        return None
    others = SourceError, UsageError, NotZTensorError
    with contextlib.suppress(*others), contextlib.closing(source_of(name, mapped=False)) as source:
        return header_class(source).format
    return None


def _is_mendable(source: Source, kind: type[Header]) -> bool:
    """Return whether the header of a damaged file is sound, and no tensors overlap."""
    try:
        with foreign_bytes("the file", source.name):
            header = kind(source, Budget(DEFAULT_LIMITS, source.size), are_checked=False)
    except ZTensorError:
        return False
    parts = [tensor.components["data"] for tensor in header.objects.values()]
    ranges = sorted((part.offset, part.offset + part.length) for part in parts if part.length)
    return all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ranges))


def parsed(source: Source, *, are_checked: bool) -> tuple[Header, dict[str, Item]]:
    """Return the header of a file, and its tensors as items.

    Raises:
        UsageError: the format cannot be changed.
        FormatError: the file is damaged, or of no known format.
        UnsupportedError: the file has content that an edit would lose.
        LimitError: a safety cap is exceeded.
    """
    kind = header_class(source)
    budget = Budget(DEFAULT_LIMITS, source.size)
    try:
        with foreign_bytes("the file", source.name):
            header = kind(source, budget, are_checked=are_checked)
            budget.charge_bytes(_ITEM_COST * len(header.objects))
    except FormatError as error:
        if are_checked and _is_mendable(source, kind):
            error.hint = "`ztensor repair` lists all faults"
        raise
    items = {
        name: Item(tensor, tensor.components["data"].offset)
        for name, tensor in header.objects.items()
    }
    return header, items
