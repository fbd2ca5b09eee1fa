"""Objects that are described when they are asked for: their names are known without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ztensor.errors import ZTensorError
from ztensor.guard import foreign_bytes
from ztensor.locks import Lock
from ztensor.spec.model.manifest import TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class LaterObjects(Mapping[str, TensorObject]):
    """Objects by name, each made when it is first asked for; threads may share them.

    Args:
        names: all of them, each once, in the order of the file.
        make: describes one. What it raises of ours is told the object's name, and each later caller
            gets it again.
        where: about where the bytes of one begin in the file, those that say what it is included;
            by default they lie in the order of the names.
        extents: where all of that lies, as `extents_of` takes it: offsets, lengths, and whether
            each is encoded; by default that is unknown.

    Attributes:
        where: as given.
        extents: as given.
    """

    __slots__ = ("_found", "_lock", "_make", "extents", "where")

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[str], TensorObject],
        *,
        where: Callable[[str], int] = lambda _: 0,
        extents: Callable[[], tuple[list[int], list[int], list[bool]]] = lambda: ([], [], []),
    ) -> None:
        self.where = where
        self.extents = extents
        self._found: dict[str, TensorObject | None] = dict.fromkeys(names)
        self._make = make
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> TensorObject:
        found = self._found[name]
        if found is None:
            with self._lock:  # what is charged and remembered while one is made is not shared
                found = self._found[name]
                if found is None:
                    try:
                        with foreign_bytes("the object"):
                            found = self._found[name] = self._make(name)
                    except ZTensorError as error:
                        error.locate(object_name=name).forget_sections()
                        raise
        return found
