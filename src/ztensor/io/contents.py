"""From what a caller passed to the objects in it: one file, a set, or what an opener knows.

A file on disk whose name leads to no others is opened at once (`open_file`). For anything else the
openers are asked, then whether it is a set of files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ztensor.arguments import require_choice
from ztensor.errors import (
    ArgumentValueError,
    ContainerError,
    FormatError,
    NotZTensorError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    UnsupportedError,
    UsageError,
    describe,
)
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.listing import component_extents, read_manifest
from ztensor.io.source.base import read_bytes
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import path_text
from ztensor.io.source.reference import Remote, path_of_file_url, with_storage
from ztensor.io.source.table import is_remote, source_of
from ztensor.limits import Limits, caps_of
from ztensor.registry import Registry
from ztensor.spec.container.framing import (
    FOOTER_2_BYTES,
    MAGIC_1,
    MAGIC_2,
    Container,
    may_be_damaged,
)
from ztensor.spec.model.later import LaterObjects

if TYPE_CHECKING:
    from typing import Unpack

    from ztensor.accepted import Path, Storage
    from ztensor.io.reading.objects import Objects
    from ztensor.io.shards.objects import ShardedObjects
    from ztensor.io.source.ahead import AheadSource
    from ztensor.io.source.base import Source
    from ztensor.options import FileOptions
    from ztensor.spec.container.framing import Frame
    from ztensor.spec.model.manifest import Manifest

# What opens several files that are one thing, by the name of the file that leads to the others.
# Asked for that file, for folders, and for a URL at which there is no object; plugins are asked for
# whatever else is no file that can be read. One takes what the caller passed, `is_missing`, which
# says that there is no such file, and `FileOptions`; it returns None for what it does not know.
OPENERS: Registry[str, Callable[..., Objects | None]] = Registry(
    {"checkpoint.zt": "ztensor.distributed.opened:open_given"},
    group="ztensor.openers",
    kind=Callable,
)
# For a file of no known format, for no file, and for a folder with no model or with several.
_NOTHING = NotZTensorError, SourceNotFoundError, SourceNotRegularError, ArgumentValueError
# How files are called that lead to others: an index, the first shard of GGUF.
_LEADING = (".json", ".gguf", *OPENERS.lines)

_HEAD_BYTES = 4096  # a file system leaves zeros by blocks of this
_TRIES = 20  # to read what is being written; 0.1 s in all
_RETRY_SECONDS = 0.005
# What a `Projection` says of how its objects are read.
_OF_PROJECTIONS = ("format", "encodings", "account", "sums", "faults")


# --- What the caller gave -------------------------------------------------------------------


def objects_of(
    given: Any,
    *,
    is_one: bool = False,
    storage: Storage | None = None,
    cache: Path | None = None,
    **how: Unpack[FileOptions],
) -> Objects:
    """Return the objects of a file, of a set of files, or of what an opener knows.

    Args:
        given: what the caller passed.
        is_one: True takes no set of files.
        storage: see `ztensor.typing.OpenOptions`.
        cache: likewise.
        how: how a file is read.
    """
    if storage is not None or cache is not None:
        given = with_storage(given, storage, cache)
    try:
        return open_file(given, **how) if _is_one_file(given) else _found(given, is_one, how)
    except _NOTHING as error:
        is_missing = isinstance(error, SourceNotFoundError)
        found = _by_opener(given, how, is_ours=False, is_missing=is_missing)
        if found is not None:
            return found
        for name in OPENERS.installed():  # all that are left are broken
            try:
                OPENERS[name]
            except UnsupportedError as broken:
                error.hint = "; ".join(filter(None, (error.hint, broken.message)))
        raise


def _is_one_file(given: Any) -> bool:
    """Return whether this is a file on disk whose name leads to no others, or no place at all."""
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        return isinstance(path, str) and not path.endswith(_LEADING) and os.path.isfile(path)
    return not isinstance(given, (list, tuple))


def _found(given: Any, is_one: bool, how: FileOptions) -> Objects:  # noqa: FBT001  # one caller
    from ztensor.io.shards.naming import is_set  # a file on disk needs none of it

    leads_to_several = isinstance(given, (str, os.PathLike)) and _leads_to_several(given)
    found = _by_opener(given, how) if leads_to_several else None
    if found is not None:
        return found
    if not is_one and is_set(given):
        return set_of(given, **how)
    try:
        return open_file(given, **how)
    except SourceNotFoundError:  # a URL may be that of a folder, or of shards beside an index
        if is_one:
            raise
        from ztensor.io.shards.finding import set_instead

        is_url = isinstance(given, Remote) or is_remote(path_text(given))
        found = _by_opener(given, how, is_missing=True) if is_url else None
        if found is not None:
            return found
        several = set_instead(given)
        if several is None:
            raise
    return set_of(several, **how)


def _leads_to_several(given: Any) -> bool:
    """Return whether openers are asked before a file: for a folder, or what is called as theirs."""
    path = path_text(given)
    if not isinstance(given, Remote) and path.lower().startswith("file://"):
        path = path_of_file_url(path)
    names = {os.path.basename(path), path.partition("?")[0].rpartition("/")[2]}
    return not names.isdisjoint(("", *OPENERS.lines)) or os.path.isdir(path)


def _by_opener(
    given: Any, how: FileOptions, *, is_ours: bool = True, is_missing: bool = False
) -> Objects | None:
    """Return what the first opener gives that knows a place; None where none does.

    Args:
        given: what the caller passed.
        how: how a file is read.
        is_ours: whether openers of ours are asked, or those of plugins.
        is_missing: whether there is no such file.
    """
    for name, opener in OPENERS.usable(plugins=not is_ours):
        if (name in OPENERS.lines) is is_ours:
            found = opener(given, is_missing=is_missing, **how)
            if found is not None:
                return found
    return None


def set_of(
    given: Any,
    *,
    storage: Storage | None = None,
    cache: Path | None = None,
    **how: Unpack[FileOptions],
) -> ShardedObjects:
    """Return the objects of a set of files; see `ztensor.io.ShardedReader`."""
    from ztensor.io.shards.objects import ShardedObjects

    return ShardedObjects(with_storage(given, storage, cache), **how)


# --- One file -------------------------------------------------------------------------------


def open_file(
    path: Any,
    *,
    verify: bool | None = None,
    mmap: bool = True,
    limits: Limits | None = None,
    recover: bool = False,
) -> FileObjects:
    """Return the objects of one file; see `ztensor.Reader` and `FileOptions`."""
    require_choice("verify", verify, (None, True, False))
    caps = caps_of(limits)
    for left in reversed(range(_TRIES)):
        source = _source_of(path, mapped=mmap)
        how: dict[str, Any] = {}
        try:
            frame, manifest, how = _contents(source, caps)
            # The last write of a commit may have come between opening the file and reading what it
            # says: what was opened is its new state, but looks like one changed since.
            if not left or not (isinstance(source, FileSource) and source.is_touched()):
                break
        except FormatError as error:
            # A commit being written right now is a torn end for a moment.
            if not left or not _is_being_written(source):
                frame, manifest = _recovered(source, error, caps, recover=recover)
                break
        except SourceError as error:
            # A change that was given up, or took less room than it had made, was cut off between
            # looking at the file and reading it.
            is_cut = error.reason is Reason.SOURCE_CHANGED and isinstance(source, FileSource)
            if not left or not is_cut:
                source.close()
                raise
        except BaseException:
            source.close()
            raise
        source.close()
        time.sleep(_RETRY_SECONDS)
    reopen = functools.partial(open_file, verify=verify, mmap=mmap, limits=limits, recover=recover)
    source = how.pop("source", source)
    if manifest.shards or source.prefers_long_reads:
        source = _joined(source, manifest, caps)
    return FileObjects(
        source, manifest, frame=frame, verify=verify, limits=caps, reopen=reopen, **how
    )


def _source_of(path: Any, *, mapped: bool) -> Source:
    """Return the source of what a caller passed, or the folder where that is read as one file."""
    try:
        source = source_of(path, mapped=mapped)
    except SourceNotRegularError:
        from ztensor.io.formats import opened_in  # a file of ours needs none of it

        folder = path_text(path) if isinstance(path, (str, os.PathLike)) else ""
        if opened_in(folder) is None:
            raise
        from ztensor.io.source.directory import FolderSource

        return FolderSource(folder)
    return _ahead(source) if source.prefers_long_reads else source


def _ahead(source: Source) -> AheadSource:
    """Return a source that brings what is read next, where each request is dear.

    What a format keeps and reads later goes through it, too.
    """
    from ztensor.io.source.ahead import AheadSource

    return source if isinstance(source, AheadSource) else AheadSource(source)


def _joined(source: Source, manifest: Manifest, limits: Limits) -> Source:
    """Return what all components of a file lie in, and say where, for sources that read ahead."""
    if manifest.shards:
        from ztensor.io.reading.shards import join_shards  # few files have any

        source = join_shards(source.exact(), manifest.shards, limits)
    if source.prefers_long_reads:
        from ztensor.io.source.pieces import extents_of

        source = ahead = _ahead(source)
        objects = manifest.objects
        if isinstance(objects, LaterObjects):
            ahead.expect(lambda: extents_of(*objects.extents()), is_patient=True)
        else:
            ahead.expect(lambda: extents_of(*component_extents(manifest)))
    return source


def _contents(source: Source, limits: Limits) -> tuple[Frame | None, Manifest, dict[str, Any]]:
    """Return what a file holds, and how the reader has to take it where the format is another."""
    not_ours: NotZTensorError | None = None
    if not source.is_folder:
        try:
            frame, manifest = read_manifest(source, limits)
        except NotZTensorError as error:
            # Only then is another format thought of. Its traceback leads to this frame: a circle.
            not_ours = error.with_traceback(None)
        else:
            if frame.container is Container.V2 and isinstance(source, FileSource):
                # A commit under this reader writes over the copy of a footer.
                end = frame.manifest_offset + frame.manifest_length
                source.expect_commits(FOOTER_2_BYTES, _is_footer, end)
            return frame, manifest, {}
    from ztensor.io.formats import not_read, project

    projection = project(source, limits)
    if projection is None:
        if not_ours is None or not_ours.reason is Reason.NOT_ZTENSOR:
            raise not_read(source) from not_ours
        raise not_ours
    how = {name: getattr(projection, name) for name in _OF_PROJECTIONS}
    if projection.source is not None:
        how["source"] = projection.source
    return None, projection.manifest, how


def _is_footer(end: bytes) -> bool:
    return end.endswith(MAGIC_2)


def may_be_of_ours(given: Any) -> bool:
    """Return whether a file that does not open may be one of ours, damaged or cut.

    A store has objects only as a whole, so no zeros are what is left of one.

    Raises:
        SourceError: it cannot be read.
    """
    with contextlib.closing(source_of(given, mapped=False)) as source:
        head = read_bytes(source, 0, min(source.size, _HEAD_BYTES))
        if isinstance(given, Remote) and not any(head):
            return False
        end = min(source.size, len(MAGIC_1))
        return may_be_damaged(bytes(head), bytes(read_bytes(source, source.size - end, end)))


def refuse_not_ours(source: Source, error: FormatError) -> NoReturn:
    """Raise what tells a caller who would change a file that it is none of ours.

    Args:
        source: the file.
        error: what reading it as one of ours raised; raised again where there is no more to say.

    Raises:
        UsageError: it is a file of another format.
        FormatError: it is of none that is known.
        SourceError: it cannot be read.
    """
    from ztensor.io.formats import not_read, recognised

    other = recognised(source)
    if other is not None:
        raise only_ours_change(source.name, other) from error
    head = bytes(read_bytes(source, 0, min(4, source.size)))
    if head and head not in (MAGIC_1[:4], MAGIC_2[:4]):
        raise not_read(source) from error
    raise error


def only_ours_change(name: str, kind: str) -> UsageError:
    """Return the error of a caller who would change a file of another format, or a set of files."""
    error = UsageError("only a zTensor file can be changed", file=name, found=kind)
    error.hint = f"`ztensor convert {describe(name, 200)} OUT.zt` makes one of it"
    return error


def _is_being_written(source: Source) -> bool:
    """Return whether a writer is at work on the file, or was since it was opened."""
    if source.path is None:
        return False
    from ztensor.io.source import locking

    return locking.is_locked(source.path) or (isinstance(source, FileSource) and source.is_stale())


def _recovered(
    source: Source, error: FormatError, limits: Limits, *, recover: bool
) -> tuple[Frame, Manifest]:
    """Return the last committed state where that is wanted and there is one; else raise `error`."""
    import traceback

    from ztensor.io.reading.recovery import describe_torn, search  # seldom needed

    # What the error's frames hold is all that was read; now it is read a second time.
    traceback.clear_frames(error.__traceback__)
    state = None
    try:
        if recover:
            with contextlib.suppress(ContainerError):  # of a kind whose states cannot be found
                state, _ = search(source, limits=limits)
        else:
            error.hint = describe_torn(source, error, limits) or error.hint
    finally:
        if state is None:
            source.close()
    if state is None:
        try:
            raise error
        finally:
            del error  # whose traceback leads to this frame: a circle
    import logging

    logging.getLogger("ztensor").warning(
        "%s is damaged behind byte %d; the last committed state, %d objects, was opened",
        describe(source.name, 200),
        state.end,
        len(state.manifest.objects),
    )
    return state.frame, state.manifest
