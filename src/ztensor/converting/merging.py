"""`merge`: the objects of several files in one. Stored bytes are copied, not decoded."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal

from ztensor import Reader, Writer
from ztensor import open as open_files
from ztensor.errors import Reason, UsageError
from ztensor.ext import AttributeKind, Place, is_remote
from ztensor.options import WriteOptions, require_choice, require_options, summed
from ztensor.typing import Durable, Path, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack


def merge(
    inputs: Path | Iterable[Path],
    output: Path,
    *,
    on_conflict: Literal["error", "first", "last"] = "error",
    keep: Callable[[str], bool] | None = None,
    attributes: Mapping[str, object] | None = None,
    durable: Durable = "auto",
    dry_run: bool = False,
    overwrite: bool | None = None,
    progress: Progress | None = None,
    **options: Unpack[WriteOptions],
) -> int:
    """Write the objects of several files into one, and return its length in bytes.

    Stored bytes are copied as they are, checked against their digests, with bounded memory.

    Args:
        inputs: the files, or one of them, of any format; also indexes and folders of shards. The
            array of a `.npy`, or of a file of SciPy's, has no name; it gets the name of its
            file.
        output: the new file; it may be one of the inputs.
        on_conflict: for a name in two files: an error, or the first or the last object wins.
        keep: a predicate over names; by default all objects are written.
        attributes: attributes of the new file; by default of all inputs, where the last value of
            a key wins. Different trees (see `ztensor.save_tree`) are refused.
        durable: see `ztensor.typing.SaveOptions`.
        dry_run: True does everything except writing.
        overwrite: True replaces an old file, False refuses. None replaces it if `inputs` is a list;
            a single path and an old file may be two inputs, given without their list.
        progress: called with the stored bytes copied so far and those to copy in all.
        options: see `ztensor.typing.WriteOptions`.

    Raises:
        UsageError: there is a file and `overwrite` is False, or a name is in two files, and
            `on_conflict` is "error"; or two hold different trees. No file appears.
        NotRepresentableError: the version cannot hold an object. No file appears.
        FormatError: an input is damaged. No file appears.
        SourceError: a file cannot be read or written. No file appears.
    """
    require_options("merge", options, WriteOptions)
    require_choice("on_conflict", on_conflict, ("error", "first", "last"))
    is_one = isinstance(inputs, (str, bytes, os.PathLike))
    paths: Any = [inputs] if is_one else inputs
    place = Place.of(output)
    try:
        place.require_free(overwrite=not is_one if overwrite is None else overwrite)
    except UsageError as error:
        if is_one and overwrite is None:
            error.in_python = "merge([a, b], output) merges two; overwrite=True replaces this one"
        raise
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open_files(path)) for path in paths]
        chosen: dict[str, tuple[Reader, str]] = {}
        for reader in readers:
            for name, own in names_in(reader).items():
                if keep is not None and not keep(name):
                    continue
                if name in chosen and on_conflict == "error":
                    raise UsageError(
                        "two files hold an object of this name; pass on_conflict='first' or 'last'",
                        reason=Reason.DUPLICATE_WRITE,
                        file=reader.name,
                        object_name=name,
                        found=f"also in {chosen[name][0].name}",
                    )
                if name not in chosen or on_conflict == "last":
                    chosen[name] = reader, own
        if attributes is None:
            sets = [reader.attributes for reader in readers]
            attributes = AttributeKind.merged(sets, [reader.name for reader in readers]) or None
        target: Any = place.dry() if dry_run else output
        with Writer(target, attributes=attributes, durable=durable, **options) as writer:
            ordered = sorted(chosen.items()) if options.get("canonical") else chosen.items()
            _copy(writer, [(name, *where) for name, where in ordered], progress)
            return writer.finish()


def _copy(
    writer: Writer, objects: Sequence[tuple[str, Reader, str]], progress: Progress | None
) -> None:
    """Copy objects, each given by its new name, its reader and its old name."""
    writer.copier.expect((reader.objects, own) for _, reader, own in objects)
    total = sum(reader.metadata(own).stored_nbytes for _, reader, own in objects)
    report = summed(progress, total)
    for name, reader, own in objects:
        writer.copy(name, reader, own)
        report(reader.metadata(own).stored_nbytes)


def names_in(reader: Reader) -> dict[str, str]:
    """Return the new names of a source's objects, and their names there.

    The array of a `.npy`, and of a sparse file of SciPy's, has no name: it gets the file's.
    """
    is_nameless = reader.format == "npy" or (
        reader.format == "npz" and any(reader.metadata(name).format != "dense" for name in reader)
    )
    is_named = os.path.isfile(reader.name) or is_remote(reader.name)
    if is_nameless and len(reader) == 1 and is_named:
        return {os.path.splitext(os.path.basename(reader.name))[0]: next(iter(reader))}
    return {name: name for name in reader}
