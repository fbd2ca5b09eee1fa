"""`ztensor ls`: the objects of files, one to a line."""

from __future__ import annotations

import collections
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from ztensor import ext
from ztensor.cli.choosing import name_filter, nothing_matches
from ztensor.cli.options import CHOICE, FILES, Option
from ztensor.cli.spelling import count_text, object_facts, parameters_text, shape_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import error_as_json, open_file
from ztensor.errors import Reason, ZTensorError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from ztensor import Reader, TensorMetadata

OPTIONS = (
    FILES,
    *CHOICE,
    Option(
        "--sort",
        choices=("name", "size", "offset"),
        help="Sort by name (h.2 before h.10), size (largest first) or offset.",
    ),
    Option("--summary", is_flag=True, help="Print one line per file, with its totals."),
)

_COLUMNS = (
    Column("name"),
    Column("shape"),
    Column("type"),
    Column("format", optional=True),
    Column("encoding", optional=True),
    Column("size", numeric=True),
    Column("digest", optional=True),
)

_SUMS = (
    Column("file"),
    Column("objects", numeric=True),
    Column("parameters", numeric=True),
    Column("size", numeric=True),
    Column("types"),
)


def ls(terminal: Terminal, options: Namespace) -> None:
    """List the objects of files: names, shapes, types, sizes.

    Files may have any known format, or be sets of shards. Only the list of objects is read, and no
    data, so large files are as fast as small ones.

    Output:
      One line for each object: name, shape, type (of codes, for a quantized
      object: `q5_0`, or `int4 g64` for 4 bits in groups of 64), format
      (the layout), encoding, size in the file in powers of 1000, and digest
      algorithm (or `none`; or `of chunks` in a distributed checkpoint). Several
      encodings or digests are separated by commas. If the terminal is too narrow,
      columns with the same value on every line are left out, and the last line
      has these values. In a pipe the last line is left out, nothing is shortened,
      a shape or type has no spaces, and sizes are in bytes. With several files
      the first field is the file; files of a folder that are not parts of one
      model are listed one by one. --summary prints one line for each file:
      objects, parameters, size, and types, the most bytes first.

    JSON:
      `files`, a list with one entry for each file:
      file            the argument
      version         of the format, if it has versions
      object_count    of the whole file
      objects         a list: name, shape, dtype (storage type, null if the
                      layout is unknown), type (logical type or null), elements
                      (the type as it is listed), format, encoding, digest,
                      stored_nbytes
      stored_nbytes   of the objects listed
      listed_count    number of objects listed
      parameter_count
                      elements of the objects listed: dequantized elements of
                      quantized objects, stored ones of sparse objects; tied
                      objects count once
      types           with --summary, in place of objects: text
      error           why the file could not be opened; then only file is there

    Safety:
      It never changes a file, and reads no values; `ztensor verify` does.

    Exit code:
      0 if all files were listed, else the highest code of any file; 2 if the
      patterns match no name in any file.

    Examples:
      $ ztensor ls tiny.safetensors
        the objects in a file of another format
      $ ztensor ls model.zt
        sparse and quantized objects, too
      $ ztensor ls model.zt --include 'layers.*' --exclude '*.int4' --sort size
        some of them, largest first
    """
    listings = []
    names: list[str] = []
    count = 0
    left = collections.deque(options.files)
    while left:
        file = left.popleft()
        listing: dict[str, Any] = {"file": file}
        try:
            with open_file(file) as reader:
                objects = select(reader, options)
                listing.update(as_json(reader, objects))
                names += reader
                count += len(objects)
                if options.summary:
                    listing["types"] = _types(listing.pop("objects"))
        except ZTensorError as error:
            if error.reason is Reason.DUPLICATE_NAME and os.path.isdir(file):
                left.extendleft(reversed(_unrelated(file)))
                continue
            terminal.error(error)
            listing["error"] = error_as_json(error)
        listings.append(listing)
    if names and not count:
        terminal.result({"files": listings})
        raise nothing_matches(names, options.include)
    (_show_sums if options.summary else _show)(terminal, listings)
    terminal.result({"files": listings})


def _unrelated(folder: str) -> list[str]:
    """Return the files of a folder that are not parts of one model."""
    paths = (os.path.join(folder, name) for name in os.listdir(folder))
    return sorted(ext.FORMATS.readable(paths), key=_by_number)


def select(reader: Reader, options: Namespace) -> list[TensorMetadata]:
    """Return the objects that patterns choose, sorted as `--sort` says."""
    objects = [reader.metadata(name) for name in filter(name_filter(options), reader)]
    if options.sort == "name":
        objects.sort(key=lambda metadata: _by_number(metadata.name))
    elif options.sort == "size":
        objects.sort(key=lambda metadata: -metadata.stored_nbytes)
    elif options.sort == "offset":
        objects.sort(
            key=lambda metadata: min((c.offset for c in metadata.components.values()), default=0)
        )
    return objects


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a key that puts `h.2` before `h.10`: digits count by their number, then as text."""
    key = []
    for index, part in enumerate(re.split(r"([0-9]+)", name)):
        digits = part.lstrip("0") if index % 2 else part
        key.append((len(digits) if index % 2 else 0, digits))
    return [*key, (0, name)]


def as_json(reader: Reader, objects: Sequence[TensorMetadata]) -> dict[str, Any]:
    """Return the entry of a file in `ls --json`."""
    from ztensor.insight.analysis.parameters import parameter_count

    digests = _of_chunks(reader)
    return {
        "version": reader.version,
        "object_count": len(reader),
        "objects": [
            {
                **object_facts(metadata),
                "encoding": _words(c.encoding for c in metadata.components.values()),
                "digest": digests
                or _words(_algorithm(c.digest) for c in metadata.components.values()),
                "stored_nbytes": metadata.stored_nbytes,
            }
            for metadata in objects
        ],
        "stored_nbytes": sum(description.stored_nbytes for description in objects),
        "listed_count": len(objects),
        "parameter_count": parameter_count(reader, objects),
    }


def _of_chunks(reader: Reader) -> str:
    """Return the digest column of a distributed checkpoint; else an empty text."""
    divided = sys.modules.get("ztensor.distributed.opened")  # loaded if one was opened
    objects: Any = reader.objects
    is_divided = divided is not None and isinstance(objects, divided.DividedObjects)
    return "of chunks" if is_divided and objects.root.table.digest is not None else ""


def _types(objects: Sequence[dict[str, Any]]) -> str:
    """Return the types of objects, the type with the most bytes first."""
    nbytes: collections.Counter[str] = collections.Counter()
    for metadata in objects:
        nbytes[metadata["elements"]] += metadata["stored_nbytes"]
    return ",".join(sorted(nbytes, key=lambda word: (-nbytes[word], word))) or "none"


def _words(words: Iterable[str]) -> str:
    """Return the distinct words of an object's components."""
    return ",".join(dict.fromkeys(words)) or "none"


def _algorithm(digest: str | None) -> str:
    return "none" if digest is None else digest.partition(":")[0].lower()


def _show(terminal: Terminal, listings: Sequence[dict[str, Any]]) -> None:
    opened = [listing for listing in listings if "error" not in listing]
    if not terminal.interactive:
        # Exact sizes, and with several files a column that says which, for other programs.
        lead = [Column("file")] if len(listings) > 1 else []
        rows = [
            [listing["file"]] * len(lead)
            + _row(
                entry,
                _dimensions(entry),
                entry["elements"].replace(" ", "_"),
                str(_size(entry)),
            )
            for listing in opened
            for entry in listing["objects"]
        ]
        if opened:
            terminal.table([*lead, *_COLUMNS], rows)
        return
    for listing in opened:
        if len(listings) > 1:
            terminal.line(listing["file"])
        objects = listing["objects"]
        alike = []
        if objects:
            rows = [
                _row(
                    metadata,
                    shape_text(metadata["shape"]),
                    metadata["elements"],
                    size_text(_size(metadata)),
                )
                for metadata in objects
            ]
            alike = terminal.table(_COLUMNS, rows)
        total = count_text(listing["object_count"], "object")
        if len(objects) != listing["object_count"]:
            total = f"{len(objects):,} of {total}"
        facts = [total, size_text(listing["stored_nbytes"])]
        facts.extend(f"{title} {cell}" for title, cell in alike)
        terminal.line(", ".join(facts))
        if listing is not opened[-1]:
            terminal.line()


def _show_sums(terminal: Terminal, listings: Sequence[dict[str, Any]]) -> None:
    is_for_people = terminal.interactive
    rows = [
        (
            listing["file"],
            f"{listing['listed_count']:,}" if is_for_people else str(listing["listed_count"]),
            parameters_text(listing["parameter_count"]).rpartition(" ")[0]
            if is_for_people
            else str(listing["parameter_count"]),
            size_text(listing["stored_nbytes"]) if is_for_people else str(listing["stored_nbytes"]),
            listing["types"] if is_for_people else listing["types"].replace(" ", "_"),
        )
        for listing in listings
        if "error" not in listing
    ]
    if rows:
        terminal.table(_SUMS, rows)


def _dimensions(entry: dict[str, Any]) -> str:
    return f"[{','.join(map(str, entry['shape']))}]"  # no spaces: one field


def _size(entry: dict[str, Any]) -> int:
    nbytes: int = entry["stored_nbytes"]
    return nbytes


def _row(entry: dict[str, Any], shape: str, elements: str, size: str) -> list[str]:
    return [
        entry["name"],
        shape,
        elements,
        entry["format"],
        entry["encoding"],
        size,
        entry["digest"],
    ]
