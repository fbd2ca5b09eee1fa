"""`ztensor info`: version, sizes and attributes of a file, and the use of its bytes."""

from __future__ import annotations

import collections
import dataclasses
import math
import sys
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli.options import FILE
from ztensor.cli.spelling import as_json, count_text, listed_text, parameters_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import open_file
from ztensor.errors import ZTensorError
from ztensor.insight.analysis.parameters import parameter_count

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence


OPTIONS = (FILE,)

_HEAD, _FOOTER_2 = 8, 40  # bytes of the header, and of the footer of 2.x
_MAGICS = {"0.1": "ZTEN0001", "1.0": "ZTEN1000", "1": "ZTEN1000", "2": "ZT2"}
_TABLES = (
    ("type", "components", "types"),
    ("format", "objects", "formats"),
    ("encoding", "components", "encodings"),
)
_DELTA = "pyztensor.delta"  # its map has ids, and a table of changes as bytes
_ATTRIBUTES_SHOWN = 50
_VALUE_CHARACTERS = 200


def info(terminal: Terminal, options: Namespace) -> None:
    """Show a file as a whole: version, sizes, attributes.

    FILE may have any known format, or be a set of shards. Only the list of objects is read, and no
    data.

    Output:
      Size, version and counts; the number of objects and bytes of each type,
      format and encoding; the file's attributes, and of a training state the
      values that are not tensors, each by its keys joined by dots; of a delta
      how much it changes, in place of its table. For other formats also content
      that a copy leaves out, such as a graph or code. For a zTensor file also the
      place of its manifest; `padding` (alignment between blobs: less than 64
      bytes each time, in 2.x less than its alignment); `dead` bytes (removed or
      replaced data and older manifests); `shared` bytes (used by several
      components), if any; `commit`, our writer's record of the last change; and
      for 2.x `canonical`: whether the same tensors always give these bytes, or
      why not. `container` is the framing: 0.1, 1.0 (releases 1.0.0 and 1.0.1), 1
      (versions 1.1 and 1.2) or 2.

    JSON:
      file, format    texts; format is `zt`, `safetensors`, `npz` and so on
      version         of the format, or null
      container       the framing, or null
      files           the paths of a set, or of a root of 2.x and the shards
                      that it needs; or null
      nbytes          size of the file, or of all files of a set
      object_count, component_count
                      how many
      parameter_count
                      elements: dequantized elements of quantized objects,
                      stored ones of sparse objects; tied objects count once
      stored_nbytes   of all components
      types, formats, encodings, digests
                      lists of name, count, nbytes; objects for formats,
                      components for the others
      digested_count, digested_nbytes
                      components that have a digest
      manifest        offset and nbytes, or null
      padding_nbytes, dead_nbytes, shared_nbytes
                      numbers, or null
                      commit          prev and end, or null
      canonical       of 2.x: is_canonical, and problems; or null
      attributes      of the file
      tree            of a training state: maps paths to the values that are not
                      tensors; or null
      unrepresented   list of kind, where, count, nbytes: what only FILE says

    Safety:
      It never changes a file, and reads no values.

    Exit code:
      0 if the file could be opened.

    Examples:
      $ ztensor info tiny.safetensors
        a file of another format has no framing of ours
      $ ztensor info model.zt
        every byte of the file is accounted for
    """
    with open_file(options.file) as reader:
        facts = {"file": options.file, **summarize(reader)}
    _show(terminal, facts)
    terminal.result(facts)


def summarize(reader: ztensor.Reader) -> dict[str, Any]:
    """Return the document of `info --json` for a file or set; None for facts it lacks."""
    parts = reader.objects.parts()
    files = [part.name for part in parts] if reader.objects.is_set else None
    nbytes = reader.nbytes
    if files is None and len(parts[0].source.parts) > 1 and parts[0].manifest.shards:
        sources = [source for _, source in parts[0].source.parts]
        files, nbytes = [source.name for source in sources], sum(s.size for s in sources)
    objects = reader.metadata(list(reader))
    components = [component for metadata in objects for component in metadata.components.values()]
    digested = [component for component in components if component.digest is not None]
    return {
        "format": reader.format,
        "files": files,
        "version": reader.version or None,
        "nbytes": nbytes,
        "object_count": len(reader),
        "component_count": len(components),
        "parameter_count": parameter_count(reader, objects),
        "stored_nbytes": sum(component.length for component in components),
        "types": _tally((c.type or c.dtype, c.length) for c in components),
        "formats": _tally(
            (description.format, description.stored_nbytes) for description in objects
        ),
        "encodings": _tally((c.encoding, c.length) for c in components),
        "digests": _tally(((c.digest or "").partition(":")[0].lower(), c.length) for c in digested),
        "digested_count": len(digested),
        "digested_nbytes": sum(component.length for component in digested),
        "unrepresented": [dataclasses.asdict(loss) for loss in reader.unrepresented],
        **_framing(reader, None if reader.objects.is_set else parts[0]),
        **_attributes(reader),
    }


def _attributes(reader: ztensor.Reader) -> dict[str, Any]:
    """Return the attributes, and a training state's values in place of their bytes."""
    from ztensor.training.stored_tree import stored_tree

    tree = stored_tree(reader)
    if tree is not None:
        try:
            plain = as_json(tree.values().plain)
        except ZTensorError:  # shown as bytes; `ztensor.load_tree` raises the error
            return {"attributes": as_json(reader.attributes), "tree": None}
        return {"attributes": as_json(tree.attributes), "tree": plain}
    return {"attributes": as_json(reader.attributes), "tree": None}


def _framing(reader: ztensor.Reader, file: ext.FileObjects | None) -> dict[str, Any]:
    """Return the facts on the container of a zTensor file: manifest, padding, dead bytes."""
    if file is None or file.frame is None:
        keys = "container manifest padding_nbytes shared_nbytes dead_nbytes commit canonical"
        return dict.fromkeys(keys.split())
    frame, commit = file.frame, file.manifest.commit
    canonical = ztensor.insight.canonical_problems(reader) if frame.container.value == "2" else None
    padding, dead, shared = room_of(file)
    return {
        "container": frame.container.value,
        "manifest": {"offset": frame.manifest_offset, "nbytes": frame.manifest_length},
        "padding_nbytes": padding,
        "shared_nbytes": shared,
        "dead_nbytes": dead,
        "commit": None if commit is None else {"prev": commit.prev, "end": commit.end},
        "canonical": None
        if canonical is None
        else {"is_canonical": not canonical, "problems": canonical},
    }


def room_of(file: ext.FileObjects) -> tuple[int, int, int]:
    """Return the numbers of padding, dead and shared bytes of a file."""
    frame = file.frame
    if frame is None:
        return 0, 0, 0
    blobs = [
        (component.offset, component.length)
        for name in file.names
        for component in file.object(name).components.values()
        if component.shard is None
    ]
    total = sum(length for _, length in blobs)
    end, page = frame.manifest_offset, 64
    if frame.container.value == "2":  # the manifest is a blob among others, or missing
        if frame.manifest_length:
            blobs.append((frame.manifest_offset, frame.manifest_length))
        end = frame.file_size - _FOOTER_2
        page = alignment_of(offset for offset, _ in blobs)
        total += frame.manifest_length
    padding, dead = unused(blobs, _HEAD, end, page)
    return padding, dead, total - (end - _HEAD - padding - dead)


def alignment_of(offsets: Iterable[int]) -> int:
    """Return the alignment of the blobs of a 2.x file, derived from their offsets."""
    return math.gcd(1 << 16, *offsets)


def unused(
    blobs: Iterable[tuple[int, int]], begin: int, end: int, page: int = 64
) -> tuple[int, int]:
    """Return the numbers of padding bytes and of dead bytes between `begin` and `end`.

    Padding ends at the next multiple of `page` after a blob, at most. All other bytes outside of
    blobs are dead: removed or replaced data, and manifests of earlier states.

    Args:
        blobs: their offsets and lengths, in any order; they may overlap.
        begin: the end of the header.
        end: the offset of the manifest, or of the footer in 2.x.
        page: the alignment of blobs.
    """
    padding = dead = 0
    position = begin
    for offset, length in [*sorted(blob for blob in blobs if blob[1]), (end, 0)]:
        gap = offset - position
        if gap > 0:
            needed = min(gap, -position % page)
            padding += needed
            dead += gap - needed
        position = max(position, offset + length)
    return padding, dead


def _tally(pairs: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return count and bytes for each word, the largest first."""
    counts: collections.Counter[str] = collections.Counter()
    nbytes: collections.Counter[str] = collections.Counter()
    for word, length in pairs:
        counts[word] += 1
        nbytes[word] += length
    words = sorted(counts, key=lambda word: (-nbytes[word], word))
    return [{"name": word, "count": counts[word], "nbytes": nbytes[word]} for word in words]


def _show(terminal: Terminal, facts: Mapping[str, Any]) -> None:
    if not terminal.wants_text:
        return
    terminal.facts(_rows(facts))
    if facts["unrepresented"]:
        _show_tally(
            terminal,
            ("only in the file", "where", "count", "size"),
            [
                (loss["kind"], loss["where"], loss["count"], loss["nbytes"])
                for loss in facts["unrepresented"]
            ],
        )
    for title, unit, key in _TABLES if facts["component_count"] else ():
        rows = [(entry["name"], entry["count"], entry["nbytes"]) for entry in facts[key]]
        _show_tally(terminal, (title, unit, "size"), rows)
    kept = {} if _delta(facts) is None else {_DELTA}
    attributes = {key: value for key, value in facts["attributes"].items() if key not in kept}
    show_attributes(terminal, attributes)
    show_attributes(terminal, facts["tree"] or {}, "values of the tree")


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and values of the facts on the file."""
    manifest, commit, files = facts["manifest"], facts["commit"], facts["files"]
    rows = [
        ("file", facts["file"]),
        ("size", _exact_size(facts["nbytes"])),
        ("version" if manifest else "format", _format(facts)),
        *((("files", count_text(len(files), "file")),) if files else ()),
        (
            "objects",
            f"{count_text(facts['object_count'], 'object')}, "
            f"{count_text(facts['component_count'], 'component')}, "
            f"{parameters_text(facts['parameter_count'])}, "
            f"{size_text(facts['stored_nbytes'])} stored",
        ),
        ("digests", _coverage(facts)),
    ]
    if manifest is not None:
        rows.insert(-1, ("manifest", f"{size_text(manifest['nbytes'])} at {manifest['offset']:,}"))
        rows.append(("padding", size_text(facts["padding_nbytes"])))
        rows.append(("dead", size_text(facts["dead_nbytes"])))
    if (delta := _delta(facts)) is not None:
        rows.append(("delta", delta))
    if facts["shared_nbytes"]:
        rows.append(("shared", f"{size_text(facts['shared_nbytes'])} counted more than once"))
    if facts["canonical"] is not None:
        problems = facts["canonical"]["problems"]
        rows.append(("canonical", f"no: {problems[0]}" if problems else "yes"))
    if commit is not None:
        rows.append(("commit", f"end {commit['end']:,}, previous end {commit['prev']:,}"))
    return rows


def _delta(facts: Mapping[str, Any]) -> str | None:
    """Return what a delta file changes, in words; None for other files."""
    fields = facts["attributes"].get(_DELTA)
    counts: list[Any] = []
    if isinstance(fields, dict):
        counts = [fields.get(key) for key in ("tensors", "changed")]
    if not counts or not all(type(count) is int for count in counts):
        return None
    changed = f"{count_text(counts[0], 'tensor')}, {count_text(counts[1], 'element')}"
    return f"of {changed}; `ztensor delta show {facts['file']}` lists them"


def _show_tally(terminal: Terminal, titles: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Print a table whose last two columns are a count and a size."""
    terminal.line()
    columns = [Column(title, numeric=title not in titles[:-2]) for title in titles]
    cells = [
        (*words, f"{count:,}", "" if nbytes is None else size_text(nbytes))
        for *words, count, nbytes in rows
    ]
    terminal.table(columns, cells)


def _exact_size(nbytes: int) -> str:
    return f"{size_text(nbytes)} ({nbytes:,} bytes)" if nbytes >= 1000 else size_text(nbytes)


def _format(facts: Mapping[str, Any]) -> str:
    version, container = facts["version"], facts["container"]
    if container is not None:
        if container == "2":
            version = "2.1"  # its manifests say 2, as in 2.0
        return f"{version}, container {container} ({_MAGICS.get(container, 'another magic')})"
    return f"{facts['format']}, version {version}" if version else str(facts["format"])


def _coverage(facts: Mapping[str, Any]) -> str:
    count = f"{facts['digested_count']:,} of {count_text(facts['component_count'], 'component')}"
    algorithms = ", ".join(f"{entry['name']} {entry['count']:,}" for entry in facts["digests"])
    return f"{count}: {algorithms}" if algorithms else count


def show_attributes(
    terminal: Terminal, attributes: Mapping[str, Any], title: str = "attributes"
) -> None:
    """Print attributes, spelled as JSON; long lists, and on a terminal long texts, are cut."""
    if not attributes:
        return
    terminal.line()
    terminal.line(title)
    most, limit = sys.maxsize, sys.maxsize
    if terminal.interactive:
        most, limit = _ATTRIBUTES_SHOWN, _VALUE_CHARACTERS
    shown = list(attributes.items())[:most]
    terminal.facts([(f"  {key}", listed_text(value, limit)) for key, value in shown])
    if len(shown) < len(attributes):
        terminal.line(f"  and {len(attributes) - len(shown):,} more; --json shows all")
