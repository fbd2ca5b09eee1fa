"""What a reader reads from: one file, a set of files, or a part of either.

`FileObjects` is one file; a set of files is `ztensor.io.shards.objects.ShardedObjects`. Readers,
loads, slices, `verify`, conversions and exports work on these and never ask which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ztensor.io.losses import Unrepresented
    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.verify import VerifyReport
    from ztensor.io.source.rights import Rights


class Objects(Protocol):
    """Named objects in one file or several.

    Attributes:
        name: the path, or what messages say in its place.
        names: the names of all objects, in order, without what they are.
        paths: those of all that is read, the index of a set first; none of memory.
        is_set: whether it was opened as a set of files, be it of one.
        is_closed: whether the files were given back.
    """

    is_set: bool

    @property
    def name(self) -> str:
        """Return the path, or what messages say in its place."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all that is read, the index of a set first; none of memory."""
        ...

    @property
    def names(self) -> Collection[str]:
        """Return the names of all objects, in order; what is in it is found at once."""
        ...

    @property
    def is_closed(self) -> bool:
        """Return whether the files were given back."""
        ...

    @property
    def format(self) -> str:
        """Return the name of the container format, of several files that of the first."""
        ...

    @property
    def version(self) -> str:
        """Return the version text, of several files that of the first."""
        ...

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the key-value pairs of all files."""
        ...

    @property
    def unrepresented(self) -> tuple[Unrepresented, ...]:
        """Return what the files say that neither objects nor attributes do."""
        ...

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files."""
        ...

    def parts(self) -> Sequence[FileObjects]:
        """Return the objects of each file, which this opens."""
        ...

    def part(self, name: str) -> FileObjects:
        """Return the objects of the file that one of them is in.

        Raises:
            ClosedError: the files were given back.
            ObjectNotFoundError: no object of that name.
            ZTensorError: what opening that file raises.
        """
        ...

    def is_known(self, name: str) -> bool:
        """Return whether what an object is can be told without asking a network.

        Args:
            name: of one of the objects.
        """
        ...

    def select(self, names: Iterable[str]) -> Self:
        """Return some of the objects, over the same open files.

        Raises:
            ObjectNotFoundError: no object of one of the names.
        """
        ...

    def mapped(self, change: Callable[[FileObjects, Sequence[str]], FileObjects]) -> Self:
        """Return the same objects with each file's changed.

        Args:
            change: takes the objects of a file and the names of those that are used.
        """
        ...

    def rights(self) -> set[Rights]:
        """Return the rights of the files whose bytes this reads; none of bytes in memory.

        Raises:
            ClosedError: the files were given back.
            SourceError: the system does not tell.
            UnsupportedError: a file that another one names is behind a link that leads away.
        """
        ...

    def identity(self) -> object:
        """Return what tells these bytes from others: of a file its place and times.

        Raises:
            SourceError: the bytes are in no file of the system, and cannot be read.
        """
        ...

    def check(
        self,
        names: Iterable[str] | None = None,
        *,
        deep: bool = False,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every stored byte and return what is wrong; see `ztensor.Reader.verify`.

        Raises:
            ClosedError: the files were given back.
            ObjectNotFoundError: no object of one of the names.
            SourceError: the bytes could not be read.
        """
        ...

    def require_open(self) -> None:
        """Raise where the files were given back.

        Raises:
            ClosedError: they were.
        """
        ...

    def close(self) -> None:
        """Give the files back; arrays that are views of them stay valid. May be called again."""
        ...
