"""Open one file: a zTensor file of any version, or a file of another format.

`open_file` is the only way from an argument of `open` to `FileObjects`: it finds the source and the
format, waits for a writer, and recovers the last committed state on request.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from ztensor.arguments import require_choice, require_function
from ztensor.errors import (
    ContainerError,
    FormatError,
    NotZTensorError,
    Reason,
    SourceError,
    SourceNotRegularError,
    describe,
)
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.manifests import component_extents, manifest_in
from ztensor.io.source.base import Opening, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.stores import source_of
from ztensor.limits import DEFAULT_LIMITS, Limits, caps_of
from ztensor.spec.container.framing import (
    FOOTER_2_BYTES,
    MAGIC_1,
    MAGIC_2,
    Container,
)
from ztensor.spec.model.objects import LaterObjects

if TYPE_CHECKING:
    from ztensor.io.source.ahead import AheadSource

_TRIES = 20  # to read a file that is being written: 0.1 s in all
_RETRY_SECONDS = 0.005
# Fields of a `Projection` that are arguments of `FileObjects`.
_OF_PROJECTIONS = ("manifest", "format", "encodings", "account", "sums", "faults")


def open_file(
    path: Any,
    *,
    verify: bool | None = None,
    mmap: bool = True,
    limits: Limits | None = None,
    recover: bool = False,
    resolver: Any = None,
) -> FileObjects:
    """Return the objects of one file; see `ztensor.Reader` and `FileOptions`."""
    if verify is not None:
        require_choice("verify", verify, (None, True, False))
    require_function("resolver", resolver)
    caps = DEFAULT_LIMITS if limits is None else caps_of(limits)
    for left in reversed(range(_TRIES)):
        source = _source_of(path, mapped=mmap)
        ahead = _ahead(source) if source.prefers_long_reads else None
        try:
            how = _contents(ahead or source, caps)
            # A commit may have ended between opening and reading: the new state was read, but the
            # file looks changed since it was opened.
            if not left or not (isinstance(source, FileSource) and source.is_touched()):
                break
        except FormatError as error:
            # While a commit is written the file looks torn.
            if not left or not _is_being_written(source):
                how = _recovered(source, error, caps, recover=recover)
                break
        except BaseException as error:
            # A writer may have truncated an aborted or shorter change between the two reads.
            is_cut = isinstance(error, SourceError) and error.reason is Reason.SOURCE_CHANGED
            if not left or not (is_cut and isinstance(source, FileSource)):
                source.close()
                raise
        source.close()
        time.sleep(_RETRY_SECONDS)
    joined, manifest = how.pop("source", None) or source, how["manifest"]
    if manifest.shards:
        from ztensor.io.reading.shards import join_shards  # few files have shards

        joined = join_shards(joined, manifest.shards, caps, resolver)
    if joined is not source:
        ahead = _ahead(joined) if joined.prefers_long_reads else None
    if ahead is not None:
        is_patient = isinstance(manifest.objects, LaterObjects)
        ahead.expect(functools.partial(component_extents, manifest), is_patient=is_patient)
    reopen = functools.partial(
        open_file, verify=verify, mmap=mmap, limits=limits, recover=recover, resolver=resolver
    )
    return FileObjects(joined, ahead=ahead, verify=verify, limits=caps, reopen=reopen, **how)


def _source_of(path: Any, *, mapped: bool) -> Source:
    """Return the source for an argument of `open`, or a folder that a format reads as one file."""
    is_path = isinstance(path, (str, os.PathLike)) and not isinstance(path, Opening)
    name = os.fspath(path) if is_path else None
    if isinstance(name, str) and "://" not in name and os.path.isfile(name):
        return FileSource(name, mapped=mapped)
    try:
        return source_of(path, mapped=mapped)
    except SourceNotRegularError:
        from ztensor.io.formats import opened_in  # zTensor files do not need it

        if not isinstance(name, str) or opened_in(name) is None:
            raise
        from ztensor.io.source.beneath import FolderSource

        return FolderSource(name)


def _ahead(source: Source) -> AheadSource:
    """Return a source that prefetches, for a source with expensive requests.

    Lazy reads of other formats go through it, too.
    """
    from ztensor.io.source.ahead import AheadSource

    return AheadSource(source)


def _contents(source: Source, limits: Limits) -> dict[str, Any]:
    """Return the content of a file as keyword arguments of `FileObjects`."""
    not_ours: NotZTensorError | None = None
    if source.files is None:
        try:
            frame, manifest = manifest_in(source, limits)
        except NotZTensorError as error:
            # Try other formats. Without its traceback, which would form a cycle with this frame.
            not_ours = error.with_traceback(None)
        else:
            if frame.container is Container.V2 and isinstance(source, FileSource):
                # A commit while this reader is open overwrites the guard copy of the footer.
                end = frame.manifest_offset + frame.manifest_length
                source.expect_commits(FOOTER_2_BYTES, MAGIC_2, end)
            return {"frame": frame, "manifest": manifest}
    from ztensor.io.formats import not_read, project

    projection = project(source, limits)
    if projection is None:
        if not_ours is None or not_ours.reason is Reason.NOT_ZTENSOR:
            raise not_read(source) from not_ours
        raise not_ours
    return {name: getattr(projection, name) for name in ("source", *_OF_PROJECTIONS)}


def refuse_not_ours(source: Source, error: FormatError) -> NoReturn:
    """Raise the error for changing a file that is not a zTensor file.

    Args:
        source: the file.
        error: the error of reading it as a zTensor file; raised if there is no better one.

    Raises:
        UsageError: the file has another format.
        FormatError: the file has no known format, or is a damaged zTensor file.
        SourceError: the file cannot be read.
    """
    from ztensor.io.formats import FORMATS, not_read, recognised

    other = recognised(source)
    if other is not None:
        raise FORMATS.unchangeable(source.name, other) from error
    head = bytes(source.read(0, min(4, source.size)))
    if head and head not in (MAGIC_1[:4], MAGIC_2[:4]):
        raise not_read(source) from error
    raise error


def _is_being_written(source: Source) -> bool:
    """Return whether a writer holds the file's lock, or has changed it since it was opened."""
    if source.path is None:
        return False
    from ztensor.io.source import locking

    return locking.is_locked(source.path) or (isinstance(source, FileSource) and source.is_stale())


def _recovered(
    source: Source, error: FormatError, limits: Limits, *, recover: bool
) -> dict[str, Any]:
    """Return the last committed state if `recover` is true and one exists, else raise `error`."""
    import logging
    import traceback

    from ztensor.io.reading.recovery import describe_torn, search  # rarely needed

    # Free the bytes that the error's frames hold: the file is read again now.
    traceback.clear_frames(error.__traceback__)
    state = None
    try:
        if recover:
            with contextlib.suppress(ContainerError):  # a container that cannot be searched
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
            del error  # its traceback would form a cycle with this frame
    logging.getLogger("ztensor").warning(
        "%s is damaged behind byte %d; the last committed state, %d objects, was opened",
        describe(source.name, 200),
        state.end,
        len(state.manifest.objects),
    )
    return {"frame": state.frame, "manifest": state.manifest}
