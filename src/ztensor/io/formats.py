"""The registry of other formats: names, suffixes, recognition, reading and writing.

The suffix decides the format to write, the content the format to read. zTensor files do not use it.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ztensor.errors import ArgumentValueError, NotZTensorError, UsageError, ZTensorError, describe
from ztensor.guard import foreign_bytes
from ztensor.io.losses import UNREAD, Tally, Unrepresented
from ztensor.io.source.base import Sink, Source
from ztensor.io.source.beneath import FolderSource, names_in
from ztensor.io.source.urls import Remote
from ztensor.limits import Budget, Limits
from ztensor.locks import cached_property
from ztensor.registry import Registry
from ztensor.spec.encoding import Encoding
from ztensor.spec.model.dtype import STORAGE_TYPES
from ztensor.spec.model.manifest import Manifest

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_HEAD_BYTES = 4096
_TAIL_BYTES = 1 << 16
_FORCE_OURS = 'format="zt" writes a zTensor file under that name nevertheless'


class Look:
    """The bytes that a format is recognised by: head, tail, and other bytes on request.

    Args:
        source: the file.

    Attributes:
        size: the length of the file.
        head: its first bytes, at most 4096.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.size = source.size
        self.head = self.read(0, min(_HEAD_BYTES, self.size))

    def read(self, start: int, length: int) -> bytes:
        """Return `length` bytes from an offset on."""
        return bytes(self._source.read(start, length))

    @cached_property
    def tail(self) -> bytes:
        """Return the last bytes, which hold the directory of an archive."""
        length = min(_TAIL_BYTES, self.size)
        return self.read(self.size - length, length)


@dataclasses.dataclass(frozen=True, slots=True)
class Projection:
    """A parsed file of another format.

    Attributes:
        manifest: its objects. Offsets and lengths are extents of the file, not aligned. `version`
            is the format's own, or empty.
        encodings: encoding names of its components to codecs: `"raw"`, and the file's own.
        account: returns the loss report.
        sums: checksums over more than one component, for `verify`: first covered byte, number of
            bytes, and a function that reads them and raises `DigestMismatchError`.
        faults: returns attribute names to the errors of their values, for `verify`.
        source: the source of the components, if they are not only in the file itself.
        format: the format's name; set by the registry.
    """

    manifest: Manifest
    encodings: Mapping[str, Encoding]
    account: Callable[[], Sequence[Unrepresented]]
    sums: Sequence[tuple[int, int, Callable[[], None]]] = ()
    source: Source | None = None
    faults: Callable[[], Mapping[str, ZTensorError]] = dict
    format: str = ""


class FormatModule(Protocol):
    """The module that reads a format, and writes it if `Format.is_written` is true."""

    def project(self, source: Source, budget: Budget) -> Projection:
        """Parse a file, and check every rule that needs no data.

        Raises:
            FormatError: the file is damaged.
            UnsupportedError: the file has content that this release cannot read.
            LimitError: a safety cap is exceeded.
            SourceError: the file cannot be read.
        """
        ...

    def export(
        self,
        reader: Any,
        sink: Sink,
        *,
        lose: Callable[[str | None, str], None],
        progress: Callable[[int, int], None] | None = None,
        threads: int | None = None,
    ) -> int:
        """Write the objects of a reader as a file of this format, as a stream.

        Args:
            reader: an open `ObjectReader` of any format.
            sink: takes the bytes in order; the caller finishes it.
            lose: called with an object's name (None for the file) and a sentence for everything
                that the format cannot represent. It may raise to refuse.
            progress: called with the bytes of tensors written so far and in all.
            threads: number of threads that decode besides the writing one; see `thread_count`.

        Returns:
            The number of objects written, in whole or in part.

        Raises:
            NotRepresentableError: the format cannot represent anything of the file.
            FormatError: stored bytes are damaged.
            SourceError: bytes could not be read or written.
        """
        ...

    def attributes_of_whole(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the attributes of a set of files, if `Format.merges_attributes` is true.

        Args:
            shards: the attributes of each file, in order.
        """
        ...


class Format(NamedTuple):
    """A format other than zTensor.

    Attributes:
        program: its name for messages, or the program that writes it.
        suffixes: its own suffixes, the first for new files. zTensor files must not use them.
        is_recognised: returns whether a file has this format.
        module: see `FormatModule`; imported for the first such file.
        is_written: whether the module has `export`.
        also: suffixes that it shares with other formats.
        merges_attributes: whether the module has `attributes_of_whole`.
        in_folder: takes a folder (path or URL) and its names. Returns the place to open if the
            format reads the folder as one file, else None. In a store the place is the main file,
            or the names of all files: see `Source.files`.
        editing: the module with `HEADER`, by which `ztensor.edit` changes files of the format (see
            `ztensor.formats.editing`); empty if they cannot be changed.
    """

    program: str
    suffixes: tuple[str, ...]
    is_recognised: Callable[[Look], bool]
    module: str
    is_written: bool = True
    also: tuple[str, ...] = ()
    merges_attributes: bool = False
    in_folder: Callable[[str | Remote, list[str]], str | Remote | list[str] | None] | None = None
    editing: str = ""

    def loaded(self) -> FormatModule:
        """Import and return the module of the format."""
        module: Any = importlib.import_module(self.module)
        return module  # type: ignore[no-any-return]


class Formats(Registry[str, Format]):
    """The table of formats, and rules for file names."""

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return writable formats to their suffixes, zTensor first, without plugins."""
        others = {
            name: format.suffixes
            for name, format in self.usable(plugins=False)
            if format.is_written
        }
        return {"zt": (".zt",), **others}

    def read_suffixes(self) -> list[str]:
        """Return the suffixes of readable files, `.zt` first, without plugins."""
        others = (each.suffixes + each.also for _, each in self.usable(plugins=False))
        return [".zt", *itertools.chain.from_iterable(others)]

    def readable(self, paths: Iterable[str]) -> list[str]:
        """Return the paths with a suffix of a readable format."""
        suffixes = set(self.read_suffixes())
        return [path for path in paths if _suffix(path) in suffixes]

    def named_as(self, path: str) -> str | None:
        """Return the format of a path's suffix, readable or writable, or None."""
        suffix = _suffix(path)
        if suffix in (".zt", ""):
            return "zt" if suffix else None
        return next((name for name, format in self.usable() if suffix in format.suffixes), None)

    def by_suffix(self, path: str) -> str | None:
        """Return the writable format of a path's suffix, or None."""
        kind = self.named_as(path)
        return kind if self._is_written(kind) else None

    def _is_written(self, kind: str | None) -> bool:
        return kind == "zt" or (kind is not None and kind in self and self[kind].is_written)

    def require_written(self, kind: str, path: str | None = None) -> str:
        """Return `kind`, and require that it is a writable format.

        Raises:
            ArgumentValueError: `kind` is not writable.
        """
        if not self._is_written(kind):
            raise ArgumentValueError(
                "unknown format to write",
                file=path or None,
                expected=f"one of {', '.join(self.written())}",
                found=describe(kind),
            )
        return kind

    def written_as(self, path: str, format: str | None = None) -> str:
        """Return the format for saving tensors at a path.

        Args:
            path: the new file.
            format: the caller's choice; None decides by the suffix. An unknown suffix gives a
                zTensor file and a `UserWarning`.

        Raises:
            ArgumentValueError: `format`, or the format of the suffix, is not writable.
        """
        if format is not None:
            return self.require_written(format, path)
        kind = self.named_as(path)
        if kind is None:
            if _SUFFIX.search(path) and not _OURS_WITHIN.search(path):
                _warn_of_suffix(path)
            return "zt"
        if not self._is_written(kind):
            written = self.written().values()
            error = ArgumentValueError(
                f"files of {self[kind].program} are not written here, and a file of another format "
                "must not have their suffix",
                file=path,
                expected=f"a suffix such as {', '.join(first for first, *_ in written)}",
                found=describe(_suffix(path)),
            )
            error.hint = _FORCE_OURS
            raise error
        return kind

    def require_ours(self, path: str, format: str | None = None) -> None:
        """Require a path for a zTensor file, for a writer that writes object by object.

        Raises:
            ArgumentValueError: suffix or `format` belong to another format.
        """
        kind = self.written_as(path, format)
        if kind != "zt":
            error = ArgumentValueError(
                "this writes zTensor files only",
                file=path,
                expected="a path that ends with .zt",
                found=describe(_suffix(path) if format is None else format),
            )
            by = f"save_file(tensors, path) writes {kind} from a dict, ztensor.convert from a file"
            error.hint = f"{by}; {_FORCE_OURS}"
            raise error

    def unchangeable(self, name: str, kind: str) -> UsageError:
        """Return the error for changing a file of another format, or several files."""
        changed = [key for key, format in self.usable(plugins=False) if format.editing]
        expected = f"one file, of {' or '.join(('zt', *changed))}"
        error = UsageError("this cannot be changed", file=name, expected=expected, found=kind)
        if kind in changed:
            error = UsageError("only a zTensor file can be changed here", file=name, found=kind)
            error.in_python = "ztensor.edit.open_editor and repair_format take such files"
        error.hint = f"`ztensor convert {describe(name, 200)} OUT.zt` converts it"
        return error


# A suffix begins with a letter: `run-1.5` has none. Temporary names such as `m.zt.tmp` have .zt.
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
_OURS_WITHIN = re.compile(r"\.zt(ensor)?\b", re.IGNORECASE)


def _warn_of_suffix(path: str) -> None:
    """Warn that the suffix of a new zTensor file is unknown."""
    text = (
        f"{describe(path, 200)}: no writable format has the suffix {_suffix(path)}; this is a "
        "zTensor file. Name it .zt, or pass format='zt'"
    )
    if sys.version_info >= (3, 12):  # blame the first caller outside this package
        warnings.warn(text, UserWarning, skip_file_prefixes=(_PACKAGE,))
    else:
        warnings.warn(text, UserWarning, stacklevel=4)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


# Tried in this order, then plugins.
FORMATS = Formats(
    {
        "safetensors": "ztensor.formats.table:SAFETENSORS",
        "keras": "ztensor.formats.table:KERAS",
        "npz": "ztensor.formats.table:NPZ",
        "npy": "ztensor.formats.table:NPY",
        "dcp": "ztensor.formats.dcp.folders:DCP",
        "pt": "ztensor.formats.table:PT",
        "gguf": "ztensor.formats.table:GGUF",
        "hdf5": "ztensor.formats.table:HDF5",
        "onnx": "ztensor.formats.table:ONNX",
    },
    group="ztensor.formats",
    kind=Format,
)
# Recognise files without a model by their head: an object with `name` and `advice`, or None.
_LOOKALIKES: Registry[str, Callable[[bytes], Any]] = Registry(
    {"lookalikes": "ztensor.formats.lookalikes:lookalike"}
)


# --- Recognising and parsing files ----------------------------------------------------------


def opened_in(
    folder: str | Remote, names: list[str] | None = None
) -> str | Remote | FolderSource | None:
    """Return the place to open for a folder that a format reads as one file, or None.

    Args:
        folder: a path or a URL.
        names: the names in the folder; None lists a folder on disk.
    """
    opener = _opener(folder, names)
    return opener and opener[1]


def _opener(
    folder: str | Remote, names: list[str] | None
) -> tuple[str, str | Remote | FolderSource] | None:
    """Return the first format that reads a folder as one file, and the place to open, or None."""
    if names is None:
        names = names_in(os.fspath(folder))
    # Plugins are not asked if the folder has a file with a known suffix.
    for name, format in FORMATS.usable(plugins=not FORMATS.readable(names)):
        place = None if format.in_folder is None else format.in_folder(folder, names)
        if isinstance(place, list):
            return name, FolderSource(Remote(folder), place)
        if place is not None:
            return name, place
    return None


def recognised(source: Source) -> str | None:
    """Return the name of a file's format, or None if the registry has no such format.

    Args:
        source: a file, or a folder that is read as one.

    Raises:
        UnsupportedError: the format is unknown, and a broken plugin may know it.
        SourceError: the file cannot be read.
    """
    if source.files is not None:
        opener = _opener(source.remote or source.name, list(source.files) or None)
        return opener and opener[0]
    look = Look(source)
    with foreign_bytes("the file", source.name):
        name = next((name for name, format in FORMATS.usable() if format.is_recognised(look)), None)
    if name is None:
        for plugin in FORMATS.installed():  # working plugins were asked above
            FORMATS[plugin]
    return name


def project(source: Source, limits: Limits) -> Projection | None:
    """Parse a file of another format. Return None if its format is unknown.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: the file has content that this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: the file cannot be read.
    """
    name = recognised(source)
    if name is None:
        return None
    module = FORMATS[name].loaded()
    try:
        with foreign_bytes("the file", source.name):
            parsed: Projection = module.project(source, Budget(limits, source.size))
    except ZTensorError as error:
        error.forget_sections()
        other = FORMATS.named_as(source.name)
        if other not in (None, "zt", name) and FORMATS[other].in_folder is not None:
            error.hint = "the file is part of a checkpoint: open the folder"
        raise
    return dataclasses.replace(parsed, format=name, account=lambda: _full_report(parsed))


def not_read(source: Source) -> NotZTensorError:
    """Return the error for a file of an unknown format."""
    known = ", ".join(("zTensor", *(name for name, _ in FORMATS.usable())))
    head = bytes(source.read(0, min(512, source.size)))
    for _, lookalike in _LOOKALIKES.usable():
        if (kind := lookalike(head)) is not None:
            error = NotZTensorError(f"this is {kind.name}", file=source.name)
            error.hint = kind.advice or f"readable formats are {known}"
            return error
    return NotZTensorError(
        "no format that can be read",
        file=source.name,
        expected=f"the first bytes of one of {known}",
        found=describe(head[:16]),
    )


def _full_report(parsed: Projection) -> list[Unrepresented]:
    """Return the loss report of a file, with the objects that are listed but cannot be read."""
    tally = Tally()
    tally.extend(parsed.account())
    for name, tensor_object in parsed.manifest.objects.items():
        for component in tensor_object.components.values():
            encoding = parsed.encodings.get(component.encoding)
            is_absent = encoding is None or encoding.is_absent
            if is_absent or component.dtype not in STORAGE_TYPES:
                tally.add(f"{UNREAD} {component.dtype}", name, nbytes=component.length or None)
    return tally()
