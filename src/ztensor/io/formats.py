"""Formats other than ours: one registry says how each is called, recognised, read and written.

The suffix decides what is written, the bytes decide what is read. A file of ours asks none of them.
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
_ALL_THE_SAME = 'format="zt" writes a zTensor file under that name all the same'


class Look:
    """What a format is recognised by: a file's first bytes, and others where they do not tell.

    Args:
        source: the file.

    Attributes:
        size: how long the file is.
        head: its first bytes, 4096 at most.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.size = source.size
        self.head = self.read(0, min(_HEAD_BYTES, self.size))

    def read(self, start: int, length: int) -> bytes:
        """Return bytes from an offset on."""
        return bytes(self._source.read(start, length))

    @cached_property
    def tail(self) -> bytes:
        """The last bytes, where archives have the names of their members."""
        length = min(_TAIL_BYTES, self.size)
        return self.read(self.size - length, length)


@dataclasses.dataclass(frozen=True, slots=True)
class Projection:
    """A file of another format as our reader takes it.

    Attributes:
        manifest: what the file holds. Offsets and lengths are places in the file itself; nothing
            is aligned. `version` is the format's own, or empty.
        encodings: how components are stored, by the word `Component.encoding` has: at least
            `"raw"`, and what is this file's own.
        account: gives what the file says beyond that, when it is asked for.
        sums: checksums over more than one component, which `verify` looks at: of each the first
            byte it covers, how many, and what reads them and raises `DigestMismatchError` where
            they do not match.
        faults: gives what is wrong with attributes, by their names, for `verify`.
        source: what the components lie in, where that is more than the file itself.
        format: the format's name in the registry, which fills it in.
    """

    manifest: Manifest
    encodings: Mapping[str, Encoding]
    account: Callable[[], Sequence[Unrepresented]]
    sums: Sequence[tuple[int, int, Callable[[], None]]] = ()
    source: Source | None = None
    faults: Callable[[], Mapping[str, ZTensorError]] = dict
    format: str = ""


class FormatModule(Protocol):
    """What reads a format, and writes it where `Format.is_written` is true."""

    def project(self, source: Source, budget: Budget) -> Projection:
        """Return what the file says, every rule checked that needs no data.

        Raises:
            FormatError: the file is damaged.
            UnsupportedError: it holds what this release cannot read.
            LimitError: a safety cap is exceeded.
            SourceError: it cannot be read.
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
        """Write what a reader holds, of whatever format, as a file of this one; stream by stream.

        Args:
            reader: an open `ObjectReader`.
            sink: where the bytes go, in order; finished by the caller.
            lose: called with an object's name (None for the file's own) and a sentence about
                what the format cannot represent. It may raise to refuse.
            progress: called with the bytes of tensors written so far and of all of them.
            threads: how many decode beside the one that writes; see `thread_count`.

        Returns:
            How many of the reader's objects the file has, in whole or in part.

        Raises:
            NotRepresentableError: the format can hold nothing of the file.
            FormatError: stored bytes are damaged.
            SourceError: bytes could not be read or written.
        """
        ...

    def attributes_of_whole(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the attributes of a set of files, where `Format.merges_attributes` is true.

        Args:
            shards: the attributes of each file, the first one first.
        """
        ...


class Format(NamedTuple):
    """A format that is not ours.

    Attributes:
        program: what people call it, or the program whose files they are.
        suffixes: how its files are called; the first is what a new one gets. A file of ours under
            such a name would lie.
        is_recognised: whether a file is of this format.
        module: see `FormatModule`; imported when the first such file is met.
        is_written: whether it has `export`.
        also: suffixes that its files have, and others too.
        merges_attributes: whether it has `attributes_of_whole`.
        in_folder: takes a folder, a path or a URL, and the names in it; returns what opens the
            folder where it is read as one file, and None for any other folder. In a store that is
            one file that leads to the others, or the names of all of them: see `Source.files`.
    """

    program: str
    suffixes: tuple[str, ...]
    is_recognised: Callable[[Look], bool]
    module: str
    is_written: bool = True
    also: tuple[str, ...] = ()
    merges_attributes: bool = False
    in_folder: Callable[[str | Remote, list[str]], str | Remote | list[str] | None] | None = None

    def loaded(self) -> FormatModule:
        """Return the module that reads the format."""
        module: Any = importlib.import_module(self.module)
        return module  # type: ignore[no-any-return]


class Formats(Registry[str, Format]):
    """The table of formats, and what the name of a file says by it."""

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return the formats that are written, ours first, with their suffixes; no plugins."""
        others = {
            name: format.suffixes
            for name, format in self.usable(plugins=False)
            if format.is_written
        }
        return {"zt": (".zt",), **others}

    def read_suffixes(self) -> list[str]:
        """Return what files are called that are read, ours first; no plugin is sought."""
        others = (each.suffixes + each.also for _, each in self.usable(plugins=False))
        return [".zt", *itertools.chain.from_iterable(others)]

    def readable(self, paths: Iterable[str]) -> list[str]:
        """Return those whose suffix says that they can be read; their bytes say what they are."""
        suffixes = set(self.read_suffixes())
        return [path for path in paths if _suffix(path) in suffixes]

    def named_as(self, path: str) -> str | None:
        """Return the format, read or written, whose suffix a path has; None where none has it."""
        suffix = _suffix(path)
        if suffix in (".zt", ""):
            return "zt" if suffix else None
        return next((name for name, format in self.usable() if suffix in format.suffixes), None)

    def by_suffix(self, path: str) -> str | None:
        """Return the format that is written under a path's suffix, or None where there is none."""
        kind = self.named_as(path)
        return kind if self._is_written(kind) else None

    def _is_written(self, kind: str | None) -> bool:
        return kind == "zt" or (kind is not None and kind in self and self[kind].is_written)

    def require_written(self, kind: str, path: str | None = None) -> str:
        """Return the name of a format, which is one that is written.

        Raises:
            ArgumentValueError: it is none.
        """
        if not self._is_written(kind):
            raise ArgumentValueError(
                "unknown format to write",
                file=path or None,
                expected=f"one of {', '.join(self.written())}",
                found=describe(kind),
            )
        return kind

    def written_as(self, path: str, format: str | None = None) -> str:  # as public functions say
        """Return the format that tensors saved at a path are written in.

        Args:
            path: the new file.
            format: what the caller asks for, which wins; None for what the suffix says. A path of
                an unknown suffix becomes a zTensor file, with a `UserWarning`.

        Raises:
            ArgumentValueError: `format` is none that is written, or the suffix is of one that is
                only read.
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
                "should not be called like one",
                file=path,
                expected=f"a suffix such as {', '.join(first for first, *_ in written)}",
                found=describe(_suffix(path)),
            )
            error.hint = _ALL_THE_SAME
            raise error
        return kind

    def require_ours(self, path: str, format: str | None = None) -> None:
        """Raise where what is written object by object would be ours under another's suffix.

        Raises:
            ArgumentValueError: the suffix is of another format.
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
            error.hint = f"{by}; {_ALL_THE_SAME}"
            raise error

    def unchangeable(self, name: str, kind: str) -> UsageError:
        """Return the error of a caller who would change another format's file, or several files."""
        error = UsageError("only a zTensor file can be changed", file=name, found=kind)
        error.hint = f"`ztensor convert {describe(name, 200)} OUT.zt` makes one of it"
        return error


# A suffix begins with a letter: `run-1.5` has none. Temporary names such as `m.zt.tmp` say .zt.
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
_OURS_WITHIN = re.compile(r"\.zt(ensor)?\b", re.IGNORECASE)


def _warn_of_suffix(path: str) -> None:
    """Warn that no format has the suffix of a new file."""
    text = (
        f"{describe(path, 200)}: no format that is written has the suffix {_suffix(path)}; this is "
        "a zTensor file. Name it .zt, or pass format='zt'"
    )
    if sys.version_info >= (3, 12):  # the caller's line, however deep it is above this one
        warnings.warn(text, UserWarning, skip_file_prefixes=(_PACKAGE,))
    else:
        warnings.warn(text, UserWarning, stacklevel=4)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


# In this order they are tried, and those of plugins last.
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
# What a file that holds no model is by its first bytes: its `name`, and `advice`; None for others.
_LOOKALIKES: Registry[str, Callable[[bytes], Any]] = Registry(
    {"lookalikes": "ztensor.formats.lookalikes:lookalike"}
)


# --- What bytes say -------------------------------------------------------------------------


def opened_in(
    folder: str | Remote, names: list[str] | None = None
) -> str | Remote | FolderSource | None:
    """Return what opens a folder as one file; None where it is no such folder.

    Args:
        folder: a path or a URL.
        names: what is in it; a folder on disk is listed where they are not given.
    """
    found = _opener(folder, names)
    return found and found[1]


def _opener(
    folder: str | Remote, names: list[str] | None
) -> tuple[str, str | Remote | FolderSource] | None:
    """Return the first format that reads a folder as one file, and what opens it."""
    if names is None:
        names = names_in(os.fspath(folder))
    # Where a file is of a suffix that is known, no plugin is sought.
    for name, format in FORMATS.usable(plugins=not FORMATS.readable(names)):
        found = None if format.in_folder is None else format.in_folder(folder, names)
        if isinstance(found, list):
            return name, FolderSource(Remote(folder), found)
        if found is not None:
            return name, found
    return None


def recognised(source: Source) -> str | None:
    """Return the format a file's bytes are of, or None where it is none of the registry.

    Args:
        source: a file, or a folder that is read as one.

    Raises:
        UnsupportedError: none, and a plugin that is broken may know it.
        SourceError: it cannot be read.
    """
    if source.files is not None:
        opener = _opener(source.remote or source.name, list(source.files) or None)
        return opener and opener[0]
    look = Look(source)
    with foreign_bytes("the file", source.name):
        name = next((name for name, format in FORMATS.usable() if format.is_recognised(look)), None)
    if name is None:
        for plugin in FORMATS.installed():  # all that are left are broken
            FORMATS[plugin]
    return name


def project(source: Source, limits: Limits) -> Projection | None:
    """Return what a file of another format holds, or None where it is of no format known here.

    Raises:
        FormatError: the file is damaged.
        UnsupportedError: it holds what this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    name = recognised(source)
    if name is None:
        return None
    module = FORMATS[name].loaded()
    try:
        with foreign_bytes("the file", source.name):
            found: Projection = module.project(source, Budget(limits, source.size))
    except ZTensorError as error:
        error.forget_sections()
        other = FORMATS.named_as(source.name)
        if other not in (None, "zt", name) and FORMATS[other].in_folder is not None:
            error.hint = "it is one of the files of a checkpoint: name the folder it is in"
        raise
    return dataclasses.replace(found, format=name, account=lambda: _whole_account(found))


def not_read(source: Source) -> NotZTensorError:
    """Return the error for a file whose bytes are of no format that is read."""
    known = ", ".join(("zTensor", *(name for name, _ in FORMATS.usable())))
    head = bytes(source.read(0, min(512, source.size)))
    for _, lookalike in _LOOKALIKES.usable():
        if (kind := lookalike(head)) is not None:
            error = NotZTensorError(f"this is {kind.name}", file=source.name)
            error.hint = kind.advice or f"the formats that are read are {known}"
            return error
    return NotZTensorError(
        "of no format that is read here",
        file=source.name,
        expected=f"the first bytes of one of {known}",
        found=describe(head[:16]),
    )


def _whole_account(found: Projection) -> list[Unrepresented]:
    """Return what a file says beyond what is given of it, what is listed only among it."""
    tally = Tally()
    tally.extend(found.account())
    for name, tensor_object in found.manifest.objects.items():
        for component in tensor_object.components.values():
            encoding = found.encodings.get(component.encoding)
            is_absent = encoding is None or encoding.is_absent
            if is_absent or component.dtype not in STORAGE_TYPES:
                tally.add(f"{UNREAD} {component.dtype}", name, nbytes=component.length or None)
    return tally()
