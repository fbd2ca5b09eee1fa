"""Folders of models: weights and their indexes are converted, all other files copied."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor import open as open_files
from ztensor.converting.atomic_folder import AtomicFolder, require_place
from ztensor.converting.files import write_file
from ztensor.converting.report import ConversionReport, Loss
from ztensor.converting.settings import Settings, require_divided, require_fitting
from ztensor.errors import (
    FormatError,
    LimitError,
    NotZTensorError,
    Reason,
    SourceError,
    SourceNotFoundError,
    UnsupportedError,
    UsageError,
    counted,
    describe,
)
from ztensor.ext import Beneath, Place, ShardSet, is_remote, path_text
from ztensor.typing import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


_COPY_BYTES = 8 << 20
_MOST_FILES = 100_000
# Of several files of one model, the first of these is taken.
_KINDS = (".zt", ".safetensors", ".bin")
# Only these pickles are weights: others hold, for example, the state of an optimizer.
_PICKLED = re.compile(r"(pytorch_model|diffusion_pytorch_model|adapter_model)(?=[.-])")


@dataclasses.dataclass(frozen=True, slots=True)
class FolderStep:
    """The action for one file of a folder.

    Attributes:
        action: `convert`, `index` (rewritten), `copy`, or `leave` (not in the new folder).
        source: the file, relative to the folder.
        target: its name in the new folder; empty if it is left out.
        sentence: the reason; empty if it is obvious.
    """

    action: str
    source: str
    target: str
    sentence: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FolderReport:
    """The result of `convert_folder`.

    Attributes:
        path: the new folder.
        format: format of its weights: `zt` or `safetensors`.
        steps: the action for each file.
        objects: count of objects in the converted files.
        source_nbytes: bytes of the old files that were converted.
        nbytes: bytes of the new files.
        lost: losses, each with the name of its file.
        dry_run: whether nothing was written.
    """

    path: str
    format: str
    steps: tuple[FolderStep, ...]
    objects: int
    source_nbytes: int
    nbytes: int
    lost: tuple[tuple[str, Loss], ...]
    dry_run: bool

    def __repr__(self) -> str:
        """Return the counts of files, objects and losses."""
        facts = [
            f"{describe(self.path, 200)} has weights as {self.format}",
            counted(len(self.steps), "file"),
            counted(self.objects, "object"),
            f"{counted(len(self.lost), 'thing')} lost" if self.lost else "nothing lost",
        ]
        more = ".lost" if self.lost else ".steps"
        return f"<ztensor.converting.FolderReport: {', '.join(facts)}; all: {more}>"


def convert_folder(
    source: Path,
    target: Path,
    *,
    to: str = "zt",
    compression: bool | int | str | None = None,
    pickled: bool = False,
    overwrite: bool = False,
    strict: bool = False,
    durable: bool = True,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FolderReport:
    """Make a copy of a model's folder with its weights in another format: `.zt`, or back.

    Each `.safetensors` or `.zt` file becomes a file of the other format and suffix. Indexes of
    shards are rewritten, and all other files are copied: configs, tokenizers, code, which is not
    run. Subfolders, such as those of a pipeline, are included. Every object is read back and
    compared. The new folder then appears, or replaces an old one, atomically: a killed process
    leaves the old folder, the new one or none. The next call for this folder removes its leftovers
    or moves the old folder back.

    Links, such as those of the hub's cache, are followed to files in `source` or in that cache's
    own `blobs`, and become files. Folders with a name that begins with a dot are left out.

    Args:
        source: a folder on disk.
        target: the new folder; its parent must exist.
        to: the format of the weights: `"zt"` or `"safetensors"`. Weights that have it are copied.
        compression: of `.zt` files; as for `ztensor.convert`.
        pickled: True converts `pytorch_model.bin` and the like if the model has no other weights:
            tensors are read, nothing is run. False copies them.
        overwrite: True replaces an old folder; without it, an old folder has to be empty. Targets
            of links in it stay; a folder behind a link is refused.
        strict: True refuses any loss, and then makes nothing.
        durable: True flushes the folder to disk before an old one is removed.
        dry_run: True returns the plan, and reads no weights.
        threads: how many decode, compress and compare.
        progress: called with the count of finished files, and of all.

    Returns:
        The action for each file, and the losses.

    Raises:
        ArgumentValueError: `to` is another format.
        UsageError: `target` is not empty, or one folder is in the other; or one of them is a URL.
        NotRepresentableError: something would be lost, and `strict` is set.
        UnsupportedError: a link leads out of the folder or to a folder; or an entry is neither a
            file nor a folder.
        FormatError: a file is damaged, has another format than its suffix, or differs when read
            back; an index leads out of the folder, or is wrong.
        LimitError: a safety cap is exceeded, or the folder has more than 100,000 files.
        SourceError: a file cannot be read or written; or an index names a missing file.
    """
    old, new = path_text(source), path_text(target)
    require_divided(to)
    for place in (old, new):
        if is_remote(place):
            raise UsageError("folders are converted on disk, not behind URLs", file=place)
    if not os.path.isdir(old):
        raise SourceNotFoundError("the folder does not exist", file=old)
    _require_apart(old, new)
    settings = Settings(
        compression=compression, strict=strict, check=True, durable=durable, threads=threads
    )
    require_fitting(to, settings)
    folder = _Folder(old, to, settings, pickled=pickled)
    steps = _planned(old, folder.files(), to, pickled=pickled)
    folder.indexes(steps)
    if dry_run:
        require_place(new, overwrite=overwrite)
    else:
        with AtomicFolder(new, overwrite=overwrite, durable=durable) as made:
            for count, step in enumerate(steps):
                folder.do(step, made.path)
                if progress is not None:
                    progress(count + 1, len(steps))
            made.commit()
    reports = [report for _, report in folder.reports]
    return FolderReport(
        new,
        to,
        tuple(steps),
        sum(report.objects for report in reports),
        sum(report.source_nbytes for report in reports),
        sum(report.nbytes for report in reports),
        tuple((source, loss) for source, report in folder.reports for loss in report.lost),
        dry_run,
    )


# --- The plan -------------------------------------------------------------------------------


def _require_apart(old: str, new: str) -> None:
    """Raise if one folder is in the other."""
    one, other = (os.path.join(os.path.realpath(path), "") for path in (old, new))
    if one.startswith(other) or other.startswith(one):
        raise UsageError("one folder cannot be in the other", file=new, found=describe(old, 200))


def _files(folder: str, roots: Collection[str]) -> Iterator[str]:
    """Yield paths of the files in a folder, relative to it; hidden folders are left out.

    Raises:
        UnsupportedError: a link leads to a folder, or an entry is neither a file nor a folder.
        LimitError: there are too many.
        SourceError: a folder cannot be listed.
    """
    waiting, count = [""], 0
    while waiting:
        within = waiting.pop()
        try:
            with os.scandir(os.path.join(folder, within)) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
                deeper = []
                for entry in children:
                    path = os.path.join(within, entry.name)
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith("."):
                            deeper.append(path)
                    elif entry.is_file():
                        yield path
                    else:
                        link = "a link to a folder, or to nothing"
                        raise UnsupportedError(
                            "the folder has an entry that cannot be copied",
                            reason=Reason.SOURCE_NOT_REGULAR,
                            file=entry.path,
                            expected="files and folders",
                            found=link if entry.is_symlink() else "neither file nor folder",
                        )
        except OSError as error:
            raise SourceError.from_os(error, "cannot list the folder", folder) from error
        if count > _MOST_FILES:
            raise LimitError(
                "the folder has too many files",
                reason=Reason.LIMIT_COST,
                file=folder,
                expected=f"at most {_MOST_FILES}",
            )
        waiting += reversed(deeper)


def _planned(folder: str, files: list[str], to: str, *, pickled: bool) -> list[FolderStep]:
    """Return the action for each file: the weights first, then indexes, then other files."""
    best: dict[tuple[str, str], int] = {}
    for path in files:
        if (key := _model_of(path)) is not None:
            rank = _KINDS.index(os.path.splitext(path)[1])
            best[key] = min(rank, best.get(key, rank))
    steps = {action: list[FolderStep]() for action in ("convert", "index", "copy", "leave")}
    taken: dict[str, str] = {}
    for path in files:
        about = path.partition(".index.")[0] if ShardSet.is_index(path) else path
        key = _model_of(about)
        step = FolderStep("copy", path, path)
        if key is not None and key in best:
            kind = _KINDS[best[key]]
            if os.path.splitext(about)[1] != kind:
                sentence = f"the model also has weights as {kind[1:]}"
                step = FolderStep("leave", path, "", sentence)
            elif kind == ".bin" and not pickled:
                step = FolderStep("copy", path, path, "pickles are converted on request only")
            elif kind[1:] != to:
                name = _renamed(about, to) + path[len(about) :]
                step = FolderStep("index" if ShardSet.is_index(path) else "convert", path, name)
        if step.target and taken.setdefault(step.target, path) != path:
            raise UsageError(
                f"{describe(taken[step.target], 200)} becomes the same file",
                file=os.path.join(folder, path),
                found=describe(step.target, 200),
            )
        steps[step.action].append(step)
    return [step for group in steps.values() for step in group]


def _model_of(path: str) -> tuple[str, str] | None:
    """Return a key that is equal for all weight files of a model; None for other files."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    if suffix not in _KINDS or (suffix == ".bin" and not _PICKLED.match(name)):
        return None
    if match := ShardSet.match(name):
        stem = match["stem"]
    return folder, _stem(stem)


def _stem(stem: str) -> str:
    return re.sub(r"^pytorch_model(?=[.-]|$)", "model", stem)


def _renamed(path: str, to: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{_stem(os.path.splitext(name)[0])}.{to}")


# --- The work ------------------------------------------------------------------------------


class _Folder:
    """The state of one conversion of a folder.

    Args:
        path: the folder.
        to: the format its weights become.
        settings: options of each conversion.
        pickled: as for `convert_folder`.

    Attributes:
        reports: of each file that was converted, its name in the folder and the report.
    """

    def __init__(self, path: str, to: str, settings: Settings, *, pickled: bool) -> None:
        self._path, self._to, self._pickled = path, to, pickled
        self._roots = Beneath.roots_of(path)  # folders that files may be in, links followed
        self._settings = settings
        self._names: dict[str, set[str]] = {}  # of the objects in each file that was converted
        self._indexes: dict[str, dict[str, Any]] = {}
        self.reports: list[tuple[str, ConversionReport]] = []

    def _place(self, path: str) -> Beneath:
        return Beneath(os.path.join(self._path, path), self._roots, may_be_hidden=True)

    def files(self) -> list[str]:
        """Return the files of the folder.

        Raises:
            UnsupportedError: an entry is not a file, or a link leads out of the folder.
            SourceError: a folder cannot be listed.
        """
        paths = list(_files(self._path, self._roots))
        for path in paths:
            self._place(path).require_beneath()
        return paths

    def indexes(self, steps: list[FolderStep]) -> None:
        """Read the indexes to rewrite, and check that all files they name are converted.

        Raises:
            FormatError: one is damaged, or leads out of the folder.
            SourceError: one cannot be read, or names a missing file.
        """
        renamed = {step.source: step.target for step in steps if step.action == "convert"}
        for step in steps:
            if step.action != "index":
                continue
            path = os.path.join(self._path, step.source)
            with contextlib.closing(self._place(step.source).open(mapped=False)) as source:
                open_files(path).close()  # checks the index, and that its files exist
                index = json.loads(bytes(source.read(0, source.size)))
            folder = os.path.dirname(step.source)
            for name, file in index["weight_map"].items():
                home = os.path.normpath(os.path.join(folder, file))
                if home not in renamed:
                    raise FormatError(
                        "the index names a file that is not converted with it",
                        reason=Reason.SHARD_INDEX,
                        file=path,
                        object_name=name,
                        found=describe(file, 200),
                    )
            self._indexes[step.source] = index

    def do(self, step: FolderStep, target: str) -> None:
        """Run the step of one file, in the new folder."""
        if step.action == "leave":
            return
        place = os.path.join(target, step.target)
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        except OSError as error:
            raise SourceError.from_os(error, "cannot make a folder in", target) from error
        if step.action == "copy":
            self._copy(step.source, place)
        elif step.action == "index":
            self._write_index(step, place)
        else:
            self._convert(step, place)

    def _convert(self, step: FolderStep, target: str) -> None:
        with open_files(self._place(step.source)) as reader:
            require_plain(reader, pickled=self._pickled and step.source.endswith(".bin"))
            inputs = (os.path.join(self._path, step.source),)
            report = write_file(reader, Place(target), self._to, inputs, self._settings)
            self.reports.append((step.source, report))
            self._names[os.path.normpath(step.source)] = set(reader)

    def _write_index(self, step: FolderStep, target: str) -> None:
        index = self._indexes.pop(step.source)
        folder, weight_map = os.path.dirname(step.source), index["weight_map"]
        for name, file in weight_map.items():
            if name not in self._names[os.path.normpath(os.path.join(folder, file))]:
                raise FormatError(
                    "the index assigns an object to a file without it",
                    reason=Reason.SHARD_INDEX,
                    file=os.path.join(self._path, step.source),
                    object_name=name,
                    found=describe(file, 200),
                )
            weight_map[name] = _renamed(file, self._to)
        if isinstance(index.get("metadata"), dict):
            index["metadata"].pop("digests", None)  # of the old files
        self._copy(step.source, target, (json.dumps(index, indent=2) + "\n").encode())

    def _copy(self, path: str, target: str, text: bytes | None = None) -> None:
        """Write a file with the rights of an old one; its content is `text`, or a copy if None."""
        with (
            Place(target, is_new=True).written(self._settings.durable) as sink,
            contextlib.closing(self._place(path).open(mapped=False)) as source,
        ):
            sink.narrow(source.rights())
            if text is not None:
                sink.write(text)
                return
            for offset in range(0, source.size, _COPY_BYTES):
                sink.write(source.read(offset, min(_COPY_BYTES, source.size - offset)))
            source.require_unchanged()


def require_plain(reader: Reader, *, pickled: bool) -> None:
    """Raise if files with the suffix `.zt` or `.safetensors` have another format.

    Raises:
        NotZTensorError: a file has, and is not a pickle that may be read.
    """
    for file in reader.objects.parts():
        if file.format not in ("zt", "safetensors") and not (pickled and file.format == "pt"):
            error = NotZTensorError(
                "the weights have another format than their suffix",
                file=file.name,
                expected="a .zt or .safetensors file",
                found=f"format {file.format}",
            )
            error.hint = "pickled=True reads pickles, and runs nothing of them"
            raise error
