"""Files as in the 2.x releases: a mapping from names to handles, which read nothing."""

from __future__ import annotations

import bisect
import mmap
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from ztensor import Reader
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    FormatError,
    describe,
)
from ztensor.ext import Component, FileObjects
from ztensor.typing import Path, VerifyReport
from ztensor.v2.raising import releasing
from ztensor.v2.tensor import Tensor, Verification

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@releasing
class Source:
    """A file of any known format, or several read as one: a mapping from names to tensors.

    Made by `open` and `index`. Its tensors and arrays stay valid after `close`.
    """

    def __init__(self, reader: Reader, paths: Sequence[str], *, maps: bool) -> None:
        self._reader = reader
        # The caller's paths by absolute folder: `files` shows paths as the caller wrote them.
        self._folders = {os.path.dirname(os.path.abspath(path)): path for path in paths}
        self._files = [self.shown(path) for file in reader.objects.parts() for path in file.paths]
        self._names = sorted(reader, key=lambda name: name.encode("utf-8", "surrogatepass"))
        self._is_closed = False
        self._starts: dict[int, list[int]] = {}
        self.maps = maps

    # --- The mapping ------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Return the names of all tensors, in order."""
        self._require_open()
        return list(self._names)

    def values(self) -> list[Tensor]:
        """Return all tensors, in the order of their names."""
        return [self[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Tensor]]:
        """Return names and tensors, in order."""
        return [(name, self[name]) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor, or `default` if the name is unknown."""
        try:
            return self[name]
        except KeyError:
            return default

    def __len__(self) -> int:
        """Return how many tensors there are."""
        self._require_open()
        return len(self._names)

    def __contains__(self, name: object, /) -> bool:
        """Return whether there is a tensor of that name."""
        self._require_open()
        return isinstance(name, str) and name in self._reader

    def __getitem__(self, name: str, /) -> Tensor:
        """Return a tensor.

        Raises:
            KeyError: the name is unknown.
            TypeError: the name is not text.
        """
        self._require_open()
        if not isinstance(name, str):
            raise ArgumentTypeError("the name of a tensor is text", found=describe(name))
        return Tensor(self, self._reader.objects.part(name), name, None)

    def __iter__(self) -> Iterator[str]:
        """Yield the names, in order."""
        return iter(self.keys())

    def _ipython_key_completions_(self) -> list[str]:
        return [] if self._is_closed else self.keys()

    # --- The file ---------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """Return the format of the file, or of the first of several."""
        self._require_open()
        return self._reader.format

    @property
    def files(self) -> list[str]:
        """Return the paths that are read; an index or root comes first."""
        self._require_open()
        return list(self._files)

    @property
    def attributes(self) -> dict[str, Any] | None:
        """Return the file's own attributes, or None without any."""
        self._require_open()
        objects = self._reader.objects
        has_attributes = any(part.manifest.attributes is not None for part in objects.parts())
        is_empty_map = has_attributes and objects.format == "zt"
        return self._reader.attributes or ({} if is_empty_map else None)

    @property
    def provenance(self) -> str:
        """Return the origin of the tensors' places.

        `"root"`: the manifest of a .zt file. `"data-shard"`: a .zt file without a manifest.
        `"projection"`: a file of another format, or several files.
        """
        self._require_open()
        objects = self._reader.objects
        if len(objects.parts()) != 1 or objects.format != "zt":
            return "projection"
        frame = objects.parts()[0].frame
        return "data-shard" if frame is not None and not frame.manifest_length else "root"

    def verify(self, deep: bool = False) -> Verification:  # noqa: FBT001, FBT002  # as the releases
        """Check every part of every tensor.

        Args:
            deep: True reads whole shards as well, for their digests.

        Raises:
            ValueError: a part is damaged; the message names it.
        """
        report = self.checked(None, deep=deep)
        return Verification(report.checked, report.undigested)

    def checked(self, names: list[str] | None, *, deep: bool = False) -> VerifyReport:
        """Return the report of `ztensor.Reader.verify`, but raise for damage.

        Args:
            names: the tensors to check; all by default.
            deep: as for `verify`.

        Raises:
            ValueError: a part is damaged.
        """
        self._require_open()
        report = self._reader.verify(names, deep=deep)
        for problem in report.problems:
            raise FormatError(
                problem.message,
                reason=problem.reason,
                file=self._reader.objects.name,
                object_name=problem.object_name,
                component=problem.component,
                section=problem.section,
            )
        return report

    def close(self) -> None:
        """Close the files. May be called again."""
        self._is_closed = True
        self._reader.close()

    def __enter__(self) -> Self:
        """Return the source itself."""
        self._require_open()
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return the files and the number of tensors."""
        more = f" + {len(self._files) - 1} more" if len(self._files) > 1 else ""
        shown = f'"{self._files[0]}{more}"' if self._files else '"()"'
        return (
            f"<Source {shown}{' closed' if self._is_closed else f', {len(self._names)} tensors'}>"
        )

    def shown(self, path: str) -> str:
        """Return the path of a file with its folder as the caller wrote it."""
        folder, name = os.path.split(path)
        given = self._folders.get(folder)
        return path if given is None else os.path.join(os.path.dirname(given), name)

    # --- Pages ------------------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        """Return the underlying reader."""
        self._require_open()
        return self._reader

    def has_own_pages(self, file: FileObjects, component: Component) -> bool:
        """Return whether a part shares its memory pages with no other part of the file."""
        start, end = component.offset, component.offset + component.length
        if start % mmap.PAGESIZE:
            return False
        starts = self._starts.get(id(file))
        if starts is None:
            starts = self._starts[id(file)] = sorted(
                {
                    other.offset
                    for name in file.names
                    for other in file.object(name).components.values()
                    if other.length
                }
            )
        at = bisect.bisect_right(starts, start)
        return at == len(starts) or starts[at] >= -(-end // mmap.PAGESIZE) * mmap.PAGESIZE

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the source is closed")


Mapping.register(Source)


@releasing
def open(paths: Path | Sequence[Path]) -> Source:
    """Open a file of any known format, or several as one.

    Args:
        paths: a path, or several files with different names of tensors.

    Raises:
        ValueError: a file is damaged or of an unknown format, or two have a tensor of one name.
        OSError: a file cannot be read.
        TypeError: an argument is not a path.
    """
    return _opened(paths, maps=True)


@releasing
def index(paths: Path | Sequence[Path]) -> Source:
    """Open files for their metadata: names, types and places. Nothing is mapped.

    Arguments and errors are those for `open`.
    """
    return _opened(paths, maps=False)


def _opened(paths: Any, *, maps: bool) -> Source:
    if isinstance(paths, (str, os.PathLike)):
        return Source(open_reader(paths, mmap=maps), [os.fspath(paths)], maps=maps)
    is_several = hasattr(paths, "__len__") and not isinstance(paths, (bytes, bytearray, memoryview))
    several = list(paths) if is_several else []
    if not is_several or not all(isinstance(path, (str, os.PathLike)) for path in several):
        raise ArgumentTypeError("expected a path, or several", found=describe(paths, 40))
    if len(several) < 2:
        return (
            _opened(several[0], maps=maps)
            if several
            else Source(open_reader(_NOTHING), [], maps=maps)
        )
    return Source(open_reader(several, mmap=maps), [os.fspath(path) for path in several], maps=maps)


# A file without tensors: an empty zip archive.
_NOTHING = b"PK\5\6" + bytes(18)


@releasing
def verify(path: Path, deep: bool = False) -> Verification:  # noqa: FBT001, FBT002  # as the releases
    """Check a file: its structure, the digest of every part, and constraints of types on bytes.

    Args:
        path: the file.
        deep: True reads whole shards as well, for their digests.

    Raises:
        ValueError: a part is damaged; the message names it.
        OSError: it cannot be read.
    """
    with _opened(path, maps=False) as source:
        return source.verify(deep)


@releasing
def detect(path: Path) -> str:
    """Detect the format of a file from its content: `"zt"`, `"safetensors"`, `"gguf"`, `"npz"`.

    Others are `"pt"`, `"hdf5"`, `"onnx"`, and of this library `"npy"` and `"keras"`.

    Raises:
        ValueError: the format is unknown, or the file is too damaged to be opened.
        OSError: the file cannot be read.
    """
    with _opened(path, maps=False) as source:
        return source.format


def page_size() -> int:
    """Return the system's size of a page of memory, in bytes."""
    return mmap.PAGESIZE
