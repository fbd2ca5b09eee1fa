"""`ztensor convert`: a file of any known format as a zTensor file, or as another by its suffix."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ztensor.cli.folders import convert_whole, is_folder_asked
from ztensor.cli.options import (
    CHECKSUM,
    CHUNK_ROWS,
    CONVERTING,
    JOBS,
    LOCKING,
    VERSION,
    Option,
)
from ztensor.cli.rewriting import convert_file, convert_several, rewrite
from ztensor.cli.terminal import Terminal
from ztensor.errors import UsageError
from ztensor.ext import EMITTERS, FORMATS

if TYPE_CHECKING:
    from argparse import Namespace


OPTIONS = (
    Option(
        "files",
        nargs="+",
        metavar="IN... OUT",
        help="Files of any known format, indexes or folders of shards; - is standard input. Last "
        "the new file, or a folder for several.",
    ),
    Option(
        "--to",
        metavar="FORMAT",
        help=f"{', '.join(FORMATS.written())}; by default the format of OUT's suffix.",
    ),
    VERSION,
    Option(
        "--compression",
        metavar="HOW",
        default="keep",
        help="Of a .zt: keep, the default, raw, zstd, planes, or a zstd level up to 22.",
    ),
    CHUNK_ROWS,
    Option(
        "--in-place",
        is_flag=True,
        help="Rewrite one .zt file in its place; takes no OUT.",
    ),
    Option(
        "--dequantize",
        is_flag=True,
        help="Convert quantized objects to floats, of --dtype or float32.",
    ),
    Option(
        "--quantize",
        metavar="HOW",
        help="Quantize matrices of floats that --include chooses: int2 to int8, or 'int4 g64'.",
    ),
    Option(
        "--dtype",
        metavar="float32|float16|bfloat16",
        help="Convert floats of 16 bits and more to this type.",
    ),
    Option(
        "--recipe",
        metavar="FILE",
        help="Rename, cut, join and move objects by the rules of a TOML file.",
    ),
    Option("--reverse", is_flag=True, help="Apply the inverse of --recipe."),
    CHECKSUM,
    Option(
        "--pickled",
        is_flag=True,
        help="Of a folder: convert weights in .bin files, too; nothing in them is run.",
    ),
    *CONVERTING,
    *LOCKING,
    *JOBS,
)


def convert(terminal: Terminal, options: Namespace) -> None:
    """Write a file in another format, version or compression.

    IN is a file of any known format, a set of shards, or - for standard input. The suffix of OUT,
    or --to, selects the format: .zt, .safetensors, .npz, .npy, .gguf, .h5 or .hdf5. Stored bytes
    are copied unchanged where possible, and memory use stays small. With --max-shard-size a larger
    model becomes shards beside OUT and an index, as on model hubs. OUT is written atomically.

    Several INs go into a folder: OUT must exist or end with a slash. Each file keeps its name, with
    the suffix of --to, by default .zt.

    If IN is a folder and OUT has no suffix of a format, OUT is a folder too: weights are converted
    to .zt, or to .safetensors with --to, indexes of shards are rewritten, and all other files are
    copied. Every object is compared before OUT appears.

    With --in-place one .zt file is rewritten in another version or encoding: the new
    file is read back and compared with the old one in names, shapes, types, elements and
    attributes, then replaces it atomically. It keeps its version unless --version is given. If the
    version cannot store something, nothing is written.

    --dequantize and --dtype change values: quantized objects become floats, and floats get another
    type. Other objects do not change. A finite number that is too large for the type is an error.
    --quantize stores floats of two dimensions and more as codes in groups of 128 along the last
    axis, or of the length that is given; --include and --exclude then choose which of them, and
    all other objects are written as they are. The summary shows how many objects were changed, and
    the largest error.

    With --recipe objects are renamed, split, concatenated, stacked and transposed by rules; the
    guide on formats has them. All other options are for the new names. A name without a rule is an
    error.

    Output:
      What is lost, one kind to a line, and a summary. For a folder, the action for
      each file. With --recipe and --dry-run, first each new object and its sources.

    JSON:
      file, output    the arguments
      dry_run         whether nothing was written
      format, version
                      of OUT; version is null but for .zt
      object_count    of OUT
      nbytes          before and after
      files           the new files: OUT, or the shards and last the index,
                      which output is then
      lossless, lost  lost is a list of object (null for the file's own),
                      sentence, and kind
      unrepresented   a list of kind, where, count, nbytes: what only IN says;
                      lost has a sentence on each
      checked         whether OUT was read back and compared
      unchecked       objects of IN whose bytes have no digest
      changed         a list of object, from, to, largest_error: what --dtype,
                      --dequantize and --quantize changed
      deleted         paths
      recipe          with --recipe and --dry-run: a list of rule (its number),
                      sources, source_shapes, name (null if they are dropped),
                      shape, dtype
      files           of several INs instead: a list of all these, or of file
                      and error
      folder, steps   of a folder instead of file and files: the argument, and a
                      list of action (convert, index, copy or leave), file,
                      new_file (null if left out) and sentence; lost has the
                      file of each, too

    Safety:
      It changes IN only with --in-place, and never deletes it without
      --delete-input; both after the new file was compared with it. It replaces
      an existing OUT only with --force.

    Exit code:
      0 if OUT was written, even if something is lost; with --strict or
      --in-place that is 2, and nothing is written.

    Examples:
      $ ztensor convert tiny.safetensors tiny.zt
        from another format; the first file stays
      $ ztensor convert model.zt model.safetensors --max-shard-size 40kB
        shards and an index, as model hubs have them
      $ ztensor convert tiny.safetensors tiny.gguf --dry-run
        what would be written, and lost
      $ ztensor convert model.zt half.safetensors --dequantize --dtype bfloat16
        plain floats, for programs that know no quantization
      $ ztensor convert tiny.safetensors small.zt --quantize int4 --include '*w*'
        a quarter of half precision, for weights; the rest stays
      $ ztensor convert model.zt old.zt --version 0.1.0 --include 'layers.*'
        for readers that know only an old version
      $ ztensor convert model.zt --in-place --compression 9
        the same file, with all data as zstd
      $ ztensor convert model.zt planes.zt --compression planes
        weights a third smaller, faster to read than with zstd
      $ ztensor convert model.zt --in-place --compression raw
        and raw again, ready to be mapped
      $ ztensor convert plain.zt --in-place --version 1.1.0
        for readers of 1.1; an error if 1.1 cannot store everything
      $ ztensor convert tiny.safetensors new.zt --recipe recipe.toml --dry-run
        what the rules of a recipe would make of each object
      $ ztensor convert tiny.npz model.zt new/ --to safetensors
        several files, each under its own name in a folder
    """
    keywords: dict[str, Any] = {
        "compression": _compression_of(options.compression),
        "chunk_rows": options.chunk_rows,
        "checksum": options.checksum or True,
    }
    if options.in_place:
        terminal.result(rewrite(terminal, options, keywords))
        return
    files, output = options.files, options.named_output
    if output is None:
        *files, output = files
    if not files:
        raise UsageError("give OUT, the new file")
    keywords |= {
        "to": options.to,
        "version": options.version or EMITTERS.latest,
        "dequantize": options.dequantize,
        "quantize": options.quantize,
        "dtype": options.dtype,
    }
    if options.reverse and options.recipe is None:
        raise UsageError("--reverse goes with --recipe")
    is_folder = output.endswith(("/", os.sep)) or (len(files) > 1 and os.path.isdir(output))
    if is_folder_asked(files, output):
        document = convert_whole(terminal, files[0], output, options, keywords)
    elif options.pickled:
        raise UsageError("--pickled is for folders; a file that is named is read as it is")
    elif is_folder:
        if options.recipe is not None:
            raise UsageError("--recipe is for one file: give OUT a suffix", file=output)
        document = {"files": convert_several(terminal, files, output, options, keywords)}
    elif len(files) == 1:
        document = convert_file(terminal, files[0], output, options, keywords)
    else:
        raise UsageError(
            "several files go into a folder: OUT must exist, or end with a slash",
            file=output,
        )
    terminal.result(document)


def _compression_of(text: str) -> bool | int | str | None:
    """Return the compression as `Writer` takes it, or None to keep the encoding."""
    if text == "keep":
        return None
    if text in ("raw", "none"):
        return False
    try:
        return int(text) or False
    except ValueError:
        return text
