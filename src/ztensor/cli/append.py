"""`ztensor append`: add objects of other files to a finished file."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import ztensor
from ztensor.cli.changing import changing, left_behind
from ztensor.cli.choosing import chosen, name_filter
from ztensor.cli.options import CHANGED_FILE, CHECKSUM, CHOICE, COMPRESS, EDITING, Option
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import UsageError
from ztensor.options import summed

if TYPE_CHECKING:
    from argparse import Namespace


OPTIONS = (
    CHANGED_FILE,
    Option(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="Files of any known format, indexes or folders.",
    ),
    Option("--name", metavar="NAME", help="Name for the new object, if INPUT has only one."),
    COMPRESS,
    CHECKSUM,
    *CHOICE,
    *EDITING,
)


def append(terminal: Terminal, options: Namespace) -> None:
    """Add objects of other files, of any format.

    Either everything is added or, if a name is taken or an input is damaged, nothing. The time
    depends on the new data, not on the size of FILE, unless that is a .safetensors or .gguf file,
    which is replaced by a new one. Objects are copied as stored, with their
    attributes, and checked against their digests. The array of a .npy file gets the file's name
    without .npy.

    Output:
      The number of added objects; with --dry-run the changes, one to a line.

    JSON:
      file            the argument
      dry_run         whether nothing was written
      changes         a list; each has change: `add` and `remove` with name,
                      shape, dtype, type, elements, format, stored_nbytes;
                      `replace` with name, and those as before and after;
                      `rename` with name, to; `set` and `unset` with object
                      (null for the file), key, before, and for `set` after
      object_count, nbytes
                      of the file, each with before and after
      rewritten_from  the version of an old file that was rewritten, or null
      lost            a list of object, sentence: attributes of objects, which a
                      .safetensors or .gguf FILE cannot hold
      unrepresented   a list of file, kind, where, count, nbytes: content of an
                      INPUT that no copy has

    Safety:
      It never replaces an existing object. It unpickles nothing: an array
      of Python objects is an error.

    Exit code:
      0 if all was added, 2 if a name is taken.

    Examples:
      $ ztensor append model.zt head.npy more.npz --dry-run
        the planned changes, with sizes to the byte
      $ ztensor append model.zt head.npy more.npz
        the same, done
      $ ztensor append model.zt head.npy --name output.weight
        under another name
    """
    keep = name_filter(options)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open_file(path)) for path in options.inputs]
        sources = [ztensor.edit.names_in(reader) for reader in readers]
        names = chosen(sources, options)
        if options.name is not None and (len(readers) > 1 or len(names) != 1):
            raise UsageError("--name needs one INPUT with one object")
        with (
            changing(terminal, options) as changes,
            terminal.progress(f"append to {options.file}") as progress,
        ):
            changes.facts["unrepresented"] = [
                loss
                for path, reader in zip(options.inputs, readers, strict=True)
                for loss in left_behind(terminal, path, reader)
            ]
            report = summed(progress, sum(map(_nbytes, readers)))
            for reader, source in zip(readers, sources, strict=True):
                for own in filter(keep, source):
                    new = own if options.name is None else options.name
                    changes.copy(
                        new, reader, source[own], compress=options.compress, progress=report
                    )
                    changes.added(new)


def _nbytes(reader: ztensor.Reader) -> int:
    return sum(metadata.nbytes for metadata in reader.metadata(list(reader)))
