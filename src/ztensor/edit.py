"""Changes of finished files, new files out of old ones, and repair.

`open_editor` returns the editor of a file: `Editor` for .zt, `FormatEditor` for .safetensors and
.gguf. Each change of one file is a function here: open the editor, make one change, commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

import ztensor
from ztensor import Editor, Reader, Writer
from ztensor.errors import ArgumentValueError, UsageError
from ztensor.ext import Registry, path_text
from ztensor.options import EditOptions, RemoveOptions, require_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor import compact, merge, repair, split
    from ztensor.converting.merging import names_in
    from ztensor.converting.splitting import Shard, plan_split
    from ztensor.formats.editing import (
        Finding,
        FormatEditor,
        FormatRepair,
        edited_format,
        repair_format,
    )
    from ztensor.io.edit import find
    from ztensor.typing import Path, RepairReport, TensorLike
else:
    _HOMES = {
        "ztensor": "compact merge repair split",
        "ztensor.converting.merging": "names_in",
        "ztensor.converting.splitting": "Shard plan_split",
        "ztensor.formats.editing": "Finding FormatEditor FormatRepair edited_format repair_format",
        "ztensor.io.edit": "RepairReport find",
    }
    __getattr__ = Registry.lazy(__name__, _HOMES)

__all__ = [
    "Editor",
    "Finding",
    "FormatEditor",
    "FormatRepair",
    "RepairReport",
    "Shard",
    "compact",
    "edited_format",
    "find",
    "merge",
    "names_in",
    "open_editor",
    "plan_split",
    "remove_tensors",
    "rename_tensors",
    "repair",
    "repair_format",
    "replace_tensor",
    "set_attributes",
    "split",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def open_editor(path: Path, **options: Unpack[EditOptions]) -> Editor | FormatEditor:
    """Return the editor of a file of any format that can be changed.

    Args:
        path: the file.
        options: see `ztensor.typing.EditOptions`.

    Raises:
        FormatError: the file is damaged; the message says how to repair it.
        UsageError: it is a file of a format that cannot be changed.
        SourceError: it cannot be opened for writing, or another process is writing it.
    """
    require_options("open_editor", options, EditOptions)
    try:
        return Editor(path, **options)
    except UsageError:
        if ztensor.edit.edited_format(path) is None:
            raise
    return ztensor.edit.FormatEditor(path, **options)


def replace_tensor(path: Path, name: str, data: TensorLike, **options: Unpack[EditOptions]) -> int:
    """Replace an object by other data, and return the file's new length in bytes.

    The data may have any shape, element type and layout. The old data stays readable until the
    change is committed.

    Args:
        path: the file.
        name: an object of the file.
        data: a `Tensor` or an array.
        options: see `ztensor.typing.EditOptions`.

    Raises:
        ObjectNotFoundError: the file has no object of that name.
        FormatError: the file is damaged; the message says how to repair it.
        SourceError: it cannot be written; it has its old state.
    """
    require_options("replace_tensor", options, EditOptions)
    with open_editor(path, **options) as editor:
        editor.replace(name, data)
        return editor.finish()


def remove_tensors(
    input: Path,  # the 1.2 API's name
    output: Path | None = None,
    names: str | Iterable[str] = (),
    **options: Unpack[RemoveOptions],
) -> int:
    """Remove objects, and return the length of the resulting file in bytes.

    Args:
        input: the file.
        output: a new file for the other objects; None changes `input` itself: of a .zt file that
            writes only a manifest, and leaves the removed bytes to `compact`.
        names: the objects to remove.
        options: see `ztensor.typing.RemoveOptions`: without `output` of `Editor`, else of `Writer`.

    Raises:
        ObjectNotFoundError: a name is not in the file; then nothing is changed.
        ArgumentValueError: neither `output` nor names were given.
        FormatError: the file is damaged.
        SourceError: it cannot be read or written.
    """
    require_options("remove_tensors", options, RemoveOptions)
    wanted = [names] if isinstance(names, str) else list(names)
    if output is None:
        if not wanted:
            raise ArgumentValueError("no names to remove", file=path_text(input))
        with open_editor(input, **cast("EditOptions", options)) as editor:
            editor.remove(wanted)
            return editor.finish()
    with Reader(input) as reader:
        reader.metadata(wanted)  # raises if one is missing
        attributes = reader.attributes or None
        others = cast("dict[str, Any]", options)  # an option of Editor alone is refused
        with Writer(output, attributes=attributes, **others) as writer:
            kept = [name for name in reader if name not in wanted]
            writer.copier.expect((reader.objects, name) for name in kept)
            for name in kept:
                writer.copy(name, reader)
            return writer.finish()


def rename_tensors(path: Path, names: Mapping[str, str], **options: Unpack[EditOptions]) -> int:
    """Rename objects, and return the file's new length in bytes.

    Only a manifest is written; a file of another format is replaced by a new one.

    Args:
        path: the file.
        names: old names to new ones; two can be swapped.
        options: see `ztensor.typing.EditOptions`.

    Raises:
        ObjectNotFoundError: an old name is not in the file; then nothing is changed.
        UsageError: a new name is taken.
        FormatError: the file is damaged; the message says how to repair it.
        SourceError: it cannot be written; it holds its old state.
    """
    require_options("rename_tensors", options, EditOptions)
    with open_editor(path, **options) as editor:
        editor.rename(names)
        return editor.finish()


def set_attributes(
    path: Path,
    attributes: Mapping[str, object],
    *,
    name: str | None = None,
    replace: bool = False,
    **options: Unpack[EditOptions],
) -> int:
    """Set key-value pairs of a file or one object, and return the file's new length in bytes.

    Args:
        path: the file.
        attributes: keys and values; None as a value removes the key.
        name: the object; None means the file.
        replace: True drops all other keys.
        options: see `ztensor.typing.EditOptions`.

    Raises:
        NotRepresentableError: a value cannot be stored.
        ObjectNotFoundError: the file has no object of that name.
        FormatError: the file is damaged; the message says how to repair it.
        SourceError: it cannot be written; it has its old state.
    """
    require_options("set_attributes", options, EditOptions)
    with open_editor(path, **options) as editor:
        editor.set_attributes(attributes, name=name, replace=replace)
        return editor.finish()
