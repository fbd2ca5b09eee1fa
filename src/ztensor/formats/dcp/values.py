"""The values of a checkpoint as attributes, read on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, Reason, UnsupportedError, ZTensorError, describe
from ztensor.ext import Source, Tally, Unrepresented, cached_property, foreign_bytes
from ztensor.formats.dcp.records import read_value
from ztensor.formats.dcp.table import Place
from ztensor.formats.pt.objects import LONE_VALUE
from ztensor.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class LaterAttributes(Mapping[str, object]):
    """The values by name; the first access reads all. Threads may share them.

    The plain parts of a dict or list with tensors are values under joined names. The loss report
    has such tensors, and values that are not plain data.

    Args:
        places: place of each value, None if `.metadata` has none.
        stored: returns the start of a place in the source, its length, and the end of its file.
        source: the joined files.
        limits: safety caps.
    """

    def __init__(
        self,
        places: Mapping[str, Place | None],
        stored: Callable[[Place], tuple[int, int, int]],
        source: Source,
        limits: Limits,
    ) -> None:
        self._places = places
        self._stored = stored
        self._source = source
        self._limits = limits

    def __getitem__(self, name: str) -> object:
        return self._good()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._good())

    def __len__(self) -> int:
        return len(self._good())

    def left(self) -> list[Unrepresented]:
        """Return the loss report of the values.

        Raises:
            FormatError: a value is damaged, or its file is missing.
        """
        self._good()
        return self._read[1]()

    def faults(self) -> Mapping[str, ZTensorError]:
        """Return the errors of damaged values by name."""
        return self._read[2]

    def _good(self) -> dict[str, object]:
        found, _, wrong = self._read
        for error in wrong.values():
            raise error.with_traceback(None)
        return found

    @cached_property
    def _read(self) -> tuple[dict[str, object], Tally, Mapping[str, ZTensorError]]:
        """Return the values, their loss report, and the errors of damaged values."""
        values: dict[str, object] = {}
        left, wrong = Tally(), dict[str, ZTensorError]()
        for name, place in self._places.items():
            try:
                with foreign_bytes("the value"):
                    self._read_one(name, place, values, left)
            except FormatError as error:
                where = f"the value {describe(name)}"
                error.found = f"{error.found}, {where}" if error.found else where
                wrong[name] = error.with_traceback(None)
        return values, left, wrong

    def _read_one(
        self, name: str, place: Place | None, found: dict[str, object], left: Tally
    ) -> None:
        if place is None:
            raise FormatError(
                ".metadata does not say where a value is",
                reason=Reason.COMPONENT_MISSING,
            )
        try:
            at, length, _ = self._stored(place)
            value = read_value(self._source, at, length, self._limits)
        except UnsupportedError as error:
            what = "value that is no plain data"
            if error.reason is not Reason.PICKLE_CALL:
                what = f"value that cannot be read: {error.message}"
            left.add(what, name, nbytes=place.length)
            return
        for one in value.left:
            left.add(one.kind, f"{name}.{one.where}" if one.where else name, one.count, one.nbytes)
        for inner, tensor in value.tensors.items():
            left.add("tensor within a value", f"{name}.{inner}", nbytes=tensor.stored_nbytes)
        if not value.tensors:
            lone = dict(value.attributes)
            found[name] = lone[LONE_VALUE] if lone.keys() == {LONE_VALUE} else lone
        else:
            found.update({f"{name}.{key}": one for key, one in value.attributes.items()})
