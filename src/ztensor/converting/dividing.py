"""A file as shards of 2.1: a root with the manifest, and files of blobs beside it.

| file | content |
| --- | --- |
| `model.zt` | the manifest: every object, and the size and digest of each shard |
| `model-00001-of-00003.zt` | blobs, and a footer without a manifest |

The root is written last, so an interrupted split leaves no root with missing shards.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Writer
from ztensor.converting.losses import require_lossless
from ztensor.converting.source import file_digest
from ztensor.converting.versions import representable, representable_objects
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
from ztensor.options import summed
from ztensor.typing import Durable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Progress = Callable[[int, int], None]
    Undo = Callable[..., object]  # as for `FileSink`

_DIGEST = "xxh3"


def divided_paths(root: str, count: int) -> list[str]:
    """Return the paths of the shards of a root, and last of the root itself."""
    return [*ShardSet.names(root, count), root]


def require_new(paths: Sequence[str]) -> None:
    """Raise if one of the files exists: a root and its shards are never replaced.

    Raises:
        UsageError: one exists.
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
        root: the root's path; neither it nor a shard may exist.
        groups: the names in each shard, and their bytes.
        durable: as for `Writer`.
        dry_run: True takes every step but writing.
        progress: called with the stored bytes copied so far and those to copy in all.

    Raises:
        NotRepresentableError: 2.1 cannot hold an object or attribute; nothing is written.
        SourceError: a file cannot be read or written; then all new files are removed.
    """
    paths = divided_paths(root, len(groups))
    require_new(paths)
    emitter = EMITTERS.named("2.1")
    attributes, dropped = representable(emitter.require_attributes, reader.attributes, None)
    chosen, lost = representable_objects(reader, emitter.version)
    require_lossless([*dropped, *lost], root)
    report = summed(progress, sum(nbytes for _, nbytes in groups))
    manifest = Manifest("2", {}, attributes or None)
    stem = len(os.path.splitext(root)[0]) + 1
    with contextlib.ExitStack() as made:  # removes new files after an error
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
            report(nbytes)
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
    """Writes a file of blobs; their objects are in the root's manifest."""

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
    """Give the root no more rights than the files of its objects have."""
    if isinstance(sink, FileSink):
        for file in set(chosen.values()):
            for rights in file.rights():
                sink.narrow(rights)


def _no_digest() -> str:
    """Return a placeholder as long as a digest, for a dry run."""
    known = ALGORITHMS[_DIGEST]
    return known.spell("0" * known.digits)
