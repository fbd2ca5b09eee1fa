"""A file as shards of the format itself: a root that names them, and files of blobs beside it.

| file | what it has |
| --- | --- |
| `model.zt` | the manifest: every object, and the size and digest of each shard |
| `model-00001-of-00003.zt` | blobs, and a footer that says that there is no manifest |

The root comes last, so an interrupted split leaves no file that opens and lacks something.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Writer
from ztensor.converting.losses import require_lossless
from ztensor.converting.source import file_digest
from ztensor.converting.versions import sayable, sayable_objects
from ztensor.errors import UsageError
from ztensor.ext import (
    ALGORITHMS,
    EMITTERS,
    FileObjects,
    FileSink,
    Manifest,
    Place,
    ShardSet,
    Sink,
    TensorObject,
)
from ztensor.typing import Durable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Progress = Callable[[int, int], None]
    Undo = Callable[..., object]  # as for `FileSink`

_DIGEST = "xxh3"


def divided_paths(root: str, count: int) -> list[str]:
    """Return where the shards of a root lie, and last the root itself."""
    return [*ShardSet.names(root, count), root]


def require_new(paths: Sequence[str]) -> None:
    """Raise where one of the files is there: a root and its shards are replaced by nobody.

    Raises:
        UsageError: so it is.
    """
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(
                "a root and its shards are written as new files only; name another folder "
                "(`--into`, in Python folder=)",
                file=path,
            )


def write_divided(
    reader: Reader,
    root: str,
    groups: Sequence[tuple[Sequence[str], int]],
    *,
    durable: Durable,
    dry_run: bool,
    progress: Progress | None,
) -> list[str]:
    """Write a reader's objects as a root of 2.1 and its shards; return the paths, the root last.

    Args:
        reader: an open reader.
        root: the root's path; no file is there, nor at those of the shards.
        groups: the names in each shard, and their bytes.
        durable: as for `Writer`.
        dry_run: True takes every step but writing.
        progress: called with the stored bytes copied so far and those to copy in all.

    Raises:
        NotRepresentableError: 2.1 cannot say something; nothing is written.
        SourceError: a file cannot be read or written; then none of these is left.
    """
    paths = divided_paths(root, len(groups))
    require_new(paths)
    emitter = EMITTERS.named("2.1")
    attributes, unsaid = sayable(emitter.require_attributes, reader.attributes, None)
    chosen, lost = sayable_objects(reader, emitter.version)
    require_lossless([*unsaid, *lost], root)
    total, done = sum(nbytes for _, nbytes in groups), 0
    manifest = Manifest("2", {}, attributes or None)
    stem = len(os.path.splitext(root)[0]) + 1
    with contextlib.ExitStack() as made:  # takes it back where something fails
        for (names, nbytes), path in zip(groups, paths, strict=False):
            label = os.path.splitext(path)[0][stem:]
            written, size = _write_shard(
                {name: chosen[name] for name in names},
                path,
                durable,
                made.callback,
                dry_run=dry_run,
            )
            digest = _no_digest() if dry_run else file_digest(_DIGEST, path)
            manifest = manifest.joined(label, size, digest, written)
            done += nbytes
            if progress is not None:
                progress(done, total)
        sink = _sink(root, durable, made.callback, dry_run=dry_run)
        try:
            sink.write(emitter.magic)
            _narrow(sink, chosen)
            sink.commit(emitter.emit(manifest, sink.end_blobs()))
        except BaseException:
            sink.abort()
            raise
        made.pop_all()
    return paths


class _DataShard(Writer):
    """Writes a file of blobs whose objects are in the root's manifest."""

    def __init__(self, sink: Sink) -> None:
        self._prepare(EMITTERS["2.1"](has_manifest=False))
        self._begin(sink)


def _write_shard(
    chosen: Mapping[str, FileObjects], path: str, durable: Durable, undo: Undo, *, dry_run: bool
) -> tuple[Mapping[str, TensorObject], int]:
    with _DataShard(_sink(path, durable, undo, dry_run=dry_run)) as writer:
        for name, file in chosen.items():
            writer.copy(name, file)
        return writer.draft.objects, writer.finish()


def _sink(path: str, durable: Durable, undo: Undo, *, dry_run: bool) -> Sink:
    if dry_run:
        return Place(path).dry(makes_folder=True)
    return FileSink(Place(path, is_new=True, undo=undo), durable=durable)


def _narrow(sink: Any, chosen: Mapping[str, FileObjects]) -> None:
    """Grant nobody more of the root than of what it tells of."""
    if isinstance(sink, FileSink):
        for file in set(chosen.values()):
            for rights in file.rights():
                sink.narrow(rights)


def _no_digest() -> str:
    """Return a text as long as a digest's, for a root that is not written."""
    known = ALGORITHMS[_DIGEST]
    return known.spell("0" * known.digits)
