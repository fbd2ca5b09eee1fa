"""A file as shards and an index, or as a root of 2.1 and its shards."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor import Reader, Remote
from ztensor import open as open_files
from ztensor.converting.dividing import write_divided
from ztensor.converting.files import write_set
from ztensor.converting.planning import plan_objects
from ztensor.converting.settings import Settings, require_divided
from ztensor.errors import ArgumentValueError, SourceError, UsageError, describe, without_secrets
from ztensor.ext import (
    EMITTERS,
    FORMATS,
    OpenFolder,
    Place,
    Portable,
    ShardSet,
    is_remote,
    path_text,
)
from ztensor.options import parse_size
from ztensor.typing import Durable, Path, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_INDEX = ".index.json"  # behind the name of the model


def split(
    path: Path,
    folder: Path | None = None,
    *,
    to: str = "zt",
    max_shard_size: int | str = "5GB",
    keep: Callable[[str], bool] | None = None,
    durable: Durable = "auto",
    dry_run: bool = False,
    progress: Progress | None = None,
    root: bool = False,
) -> list[str]:
    """Split a file into shards and an index, and return the paths written, the index last.

    Shards are called `model-00001-of-00003.zt` after a file `model.zt`, the index
    `model.zt.index.json`; it has `metadata.total_size` and `weight_map`, as the Hugging Face hub
    has it for safetensors, and under `metadata.digests` the sha256 of every shard. An object is
    never divided, and objects that share their bytes stay together. Shards appear first, the index
    last: an interrupted split leaves no index, or an earlier index with all its shards.

    Args:
        path: the file, or the index of a set to be split anew; of any format.
        folder: where the shards go, also a URL such as `s3://bucket/folder`; it is made where it
            is missing, and gone again where nothing was written. The file's own folder by default.
        to: the format of the shards: `"zt"` or `"safetensors"`.
        max_shard_size: most stored bytes in a shard, a number or text such as "500MB" or "5GiB".
        keep: a predicate over names; by default all objects are written.
        durable: see `ztensor.typing.SaveOptions`.
        dry_run: True does everything except writing.
        progress: called with the stored bytes copied so far and those to copy in all.
        root: True writes shards of 2.1 and no index: a root `model.zt` with the manifest and the
            size and xxh3 of each shard, and beside it files of blobs. No such file may exist.

    Raises:
        ArgumentValueError: the size is invalid, or the format has no shards.
        NotRepresentableError: the version cannot hold an object or attribute; nothing is written.
        UsageError: with `root`, one of the files exists.
        FormatError: the file is damaged.
        SourceError: a file cannot be read or written.
    """
    limit = parse_size(max_shard_size)
    require_divided(to)
    if root:
        _require_root(to, folder)
    with open_files(path) as reader:
        name, planned = _plan(reader, path, folder, limit, keep, to)
        if root:
            with _folder_of(name, is_made=not dry_run):
                return write_divided(
                    reader, name, planned, durable=durable, dry_run=dry_run, progress=progress
                )
        remote = None if folder is None else Place.of(folder).remote
        with _folder_of(name, is_made=not dry_run and remote is None):
            settings = Settings(
                Portable.version_of(reader.objects) if to == "zt" else EMITTERS.latest,
                durable=durable,
                dry_run=dry_run,
                progress=progress,
                makes_folder=True,
                keeps_all=to == "zt",
            )
            inputs = reader.objects.paths
            target = name if remote is None else Remote(name, remote.storage)
            report = write_set(reader, target, to, planned, inputs, settings, replaces_file=False)
            return list(report.files)


def _require_root(to: str, folder: Path | None) -> None:
    """Raise unless shards of 2.1 can be written.

    Raises:
        ArgumentValueError: the format is another, or the folder is not on disk.
    """
    if to != "zt" or (folder is not None and is_remote(path_text(folder))):
        raise ArgumentValueError(
            "a root and its shards are zTensor files, written to disk",
            expected="to='zt' and a folder on disk",
            found=f"{describe(to)} and {describe(folder)}",
        )


@contextlib.contextmanager
def _folder_of(name: str, *, is_made: bool) -> Iterator[None]:
    """Make the folder of a file, and remove the new folders if the work fails."""
    missing: list[str] = []
    folder = os.path.dirname(name)
    while is_made and folder and not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    made: dict[str, os.stat_result] = {}
    try:
        for folder in reversed(missing):
            try:
                os.mkdir(folder)
            except OSError as error:
                raise SourceError.from_os(error, "cannot make the folder", folder) from error
            made[folder] = os.lstat(folder)
        yield
    except BaseException:
        for folder, ours in reversed(made.items()):
            # Another program may have put something there.
            with contextlib.suppress(OSError), OpenFolder(os.path.dirname(folder)) as parent:
                parent.remove_folder(os.path.basename(folder), ours)
        raise


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """One file of a split.

    Attributes:
        path: its path.
        names: names of its objects.
        stored_nbytes: bytes of their components on disk.
    """

    path: str
    names: tuple[str, ...]
    stored_nbytes: int


def plan_split(
    path: Path,
    folder: Path | None = None,
    *,
    to: str = "zt",
    max_shard_size: int | str = "5GB",
    keep: Callable[[str], bool] | None = None,
) -> tuple[list[Shard], str]:
    """Return the shards `split` would write, and the path of the index.

    Objects keep the order of the file; a shard exceeds the size only if one object does.

    Args:
        path: as for `split`.
        folder: as for `split`.
        to: as for `split`.
        max_shard_size: as for `split`.
        keep: as for `split`.

    Raises:
        ArgumentValueError: the size is invalid.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    limit = parse_size(max_shard_size)
    require_divided(to)
    with open_files(path) as reader:
        name, planned = _plan(reader, path, folder, limit, keep, to)
    places = ShardSet.names(name, len(planned))
    shards = [
        Shard(place, tuple(names), stored)
        for place, (names, stored) in zip(places, planned, strict=True)
    ]
    return shards, name + _INDEX


def _plan(
    reader: Reader,
    path: Path,
    folder: Path | None,
    limit: int,
    keep: Callable[[str], bool] | None,
    kind: str,
) -> tuple[str, list[tuple[list[str], int]]]:
    """Return the path that shards are named after, and the names and bytes of each shard."""
    source = reader.name if reader.name.endswith(_INDEX) else without_secrets(path_text(path))
    if folder is None and is_remote(source):
        raise UsageError(
            "name the folder of the shards (`--into`, in Python folder=): a URL has none",
            file=source,
        )
    name = path_text(source, absolute=True).removesuffix(_INDEX)
    suffix = ".zt" if kind == "zt" else FORMATS[kind].suffixes[0]
    if os.path.isdir(name):
        name += suffix
    elif reader.format != kind:  # shards must not replace the source
        name = os.path.splitext(name)[0] + suffix
    if folder is not None:
        name = os.path.join(path_text(folder), os.path.basename(name))

    return name, plan_objects(reader, filter(keep, reader) if keep else reader, limit, kind)
