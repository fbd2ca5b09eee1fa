"""What is written to: a file that is looked at before it takes its place."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor import Remote
from ztensor.errors import UsageError
from ztensor.ext import EMITTERS, FileSink, Place, Store, remove
from ztensor.typing import Durable

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int], None]


class Target(FileSink):
    """A file that is looked at before it takes its place, and says how much is written.

    Args:
        place: the target.
        durable: as for `FileSink`.
        look: called with a path of the finished bytes before they are put in place; what it
            raises leaves the target as it was.
        written: called with the bytes written so far.
    """

    def __init__(
        self,
        place: Place,
        *,
        durable: Durable,
        look: Callable[[str], None],
        written: Callable[[int], None],
    ) -> None:
        super().__init__(place, durable=durable)
        self._look = look
        self._written = written

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        super()._store(gathered, data, start)
        self._written(self.position)

    def commit(self, manifest: bytes = b"") -> None:
        """Let the bytes be looked at, and put them in place."""
        self.write(manifest)
        descriptor = self.in_use()
        try:
            self._flush()
            # Where it has no name yet it will get one through /proc: see `FileSink`.
            self._look(self._temporary or f"/proc/self/fd/{descriptor.number}")
        except BaseException:
            self.abort()
            raise
        finally:
            del descriptor
        super().commit()


class RemoteTarget:
    """An object that is looked at once it is in its place, where that is asked, and not before.

    Args:
        place: the target.
        remote: its URL.
        look: called with what opens the object; what it raises takes it away again.
        written: as for `Target`.
        reads_back: whether `look` reads the object. Then nothing may be there before: it would be
            gone by the time the new one turned out wrong.

    Attributes:
        name: the URL without secrets.

    Raises:
        UsageError: there is an object, and the new one is to be read back.
        SourceError: the store cannot be asked.
    """

    def __init__(
        self,
        place: Place,
        remote: Remote,
        *,
        look: Callable[[Remote], None],
        written: Callable[[int], None],
        reads_back: bool,
    ) -> None:
        if reads_back and Store.of(remote.url).look(remote) is not None:
            error = UsageError(
                "it exists already: what is uploaded is compared once it is in place, so it "
                "replaces nothing",
                file=remote.name,
            )
            error.hint = "write under another name, or remove this one first"
            raise error
        self._sink = place._replace(is_new=place.is_new or reads_back).sink(durable=True)
        self.name = self._sink.name
        self._target = remote
        self._look = look
        self._written = written
        self._reads_back = reads_back

    @property
    def position(self) -> int:
        """Return how many bytes were written so far."""
        return self._sink.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data` (flat bytes), and say how much was written."""
        self._sink.write(data)
        self._written(self.position)

    def end_blobs(self) -> int:
        """Return the offset at which the manifest will lie."""
        return self._sink.end_blobs()

    def commit(self, manifest: bytes = b"") -> None:
        """Put the object in its place, and let it be looked at."""
        self.write(manifest)
        if not self._reads_back:
            try:
                self._look(self._target)
            except BaseException:
                self.abort()
                raise
            self._sink.commit()
            return
        self._sink.commit()
        try:
            self._look(self._target)
        except BaseException:
            remove(self._target)
            raise

    def abort(self) -> None:
        """Forget what was written."""
        self._sink.abort()


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """The arguments `convert` and `migrate` share; see there.

    Attributes:
        makes_folder: whether the folder is made where it is missing, by who calls.
        keeps_all: whether objects and attributes that a `.zt` cannot say are an error; less than
            `strict`, which refuses to lose anything.
    """

    version: str = EMITTERS.latest
    compression: bool | int | str | None = None
    chunk_rows: int | None = None
    checksum: str | bool | None = True
    strict: bool = False
    check: bool = False
    durable: Durable = "auto"
    dry_run: bool = False
    threads: int | None = None
    progress: Progress | None = None
    makes_folder: bool = False
    keeps_all: bool = False
    alignment: int | None = None
    canonical: bool = False

    @property
    def is_checked(self) -> bool:
        """Return whether the new file is read back and compared."""
        return self.check and not self.dry_run
