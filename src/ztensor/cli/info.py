"""`ztensor info`: one file as a whole, and what its bytes are used for."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ztensor.cli.spelling import as_json, count_text, json_text, size_text
from ztensor.cli.terminal import Column, Styled, Terminal
from ztensor.cli.verb import FileArgument, JsonOption, QuietOption, open_file, running

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor.opening import Reader

_MAGICS = {"0.1": "ZTEN0001", "1.0": "ZTEN1000", "1": "ZTEN1000"}
_ATTRIBUTES_SHOWN = 50
_VALUE_CHARACTERS = 200


def info(file: FileArgument, *, json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Show a file as a whole.

    Version, sizes, types, formats, encodings, digests, dead bytes, attributes.
    """
    with running(json=json, quiet=quiet) as terminal:
        with open_file(file) as reader:
            _require_one_file(reader)
            facts = {"file": str(file), **summarize(reader)}
        _show(terminal, facts)
        terminal.result(facts)


def _require_one_file(reader: Reader) -> None:
    from ztensor.errors import UsageError
    from ztensor.sharded import ShardedReader

    if isinstance(reader, ShardedReader):
        raise UsageError(
            "info is about one file; give it each of the set",
            file=reader.name,
            expected="one of its files",
            found=f"a set of {len(reader.files)}",
        )


def summarize(reader: Reader) -> dict[str, Any]:
    """Return what `info --json` says of a file."""
    from ztensor.container.framing import HEAD_BYTES

    frame, commit = reader._frame, reader._manifest.commit  # what only reading needs to know
    objects = reader.metadata(list(reader))
    components = [component for found in objects for component in found.components.values()]
    digested = [component for component in components if component.digest is not None]
    stored = sum(component.length for component in components)
    padding, dead = unused(
        ((component.offset, component.length) for component in components),
        HEAD_BYTES,
        frame.manifest_offset,
    )
    return {
        "format": reader.format,
        "container": frame.container.value,
        "version": reader.version,
        "nbytes": reader.nbytes,
        "object_count": len(reader),
        "component_count": len(components),
        "stored_nbytes": stored,
        "types": _tally((c.type or c.dtype, c.length) for c in components),
        "formats": _tally((found.format, found.stored_nbytes) for found in objects),
        "encodings": _tally((c.encoding, c.length) for c in components),
        "digests": _tally(((c.digest or "").partition(":")[0].lower(), c.length) for c in digested),
        "digested_count": len(digested),
        "digested_nbytes": sum(component.length for component in digested),
        "manifest": {"offset": frame.manifest_offset, "nbytes": frame.manifest_length},
        "padding_nbytes": padding,
        "shared_nbytes": stored - (frame.manifest_offset - HEAD_BYTES - padding - dead),
        "dead_nbytes": dead,
        "commit": None if commit is None else {"prev": commit.prev, "end": commit.end},
        "attributes": as_json(reader.attributes),
    }


def unused(blobs: Iterable[tuple[int, int]], begin: int, end: int) -> tuple[int, int]:
    """Return the bytes of padding, and the dead ones, between `begin` and `end`.

    Padding reaches from the end of a blob to the next multiple of 64 at most. Whatever else no
    blob holds is dead: what was removed or replaced, and manifests of earlier states.

    Args:
        blobs: offset and length of each, in any order; they may overlap.
        begin: where the header ends.
        end: where the manifest begins.
    """
    from ztensor.model.rules import align

    padding = dead = 0
    position = begin
    for offset, length in [*sorted(blob for blob in blobs if blob[1]), (end, 0)]:
        gap = offset - position
        if gap > 0:
            needed = min(gap, align(position) - position)
            padding += needed
            dead += gap - needed
        position = max(position, offset + length)
    return padding, dead


def _tally(pairs: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return count and bytes for each word, the one with the most bytes first."""
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
    manifest, commit = facts["manifest"], facts["commit"]
    rows = [
        ("file", facts["file"]),
        ("size", _exact_size(facts["nbytes"])),
        ("version", f"{facts['version']}, container {facts['container']} ({_magic(facts)})"),
        (
            "objects",
            f"{count_text(facts['object_count'], 'object')}, "
            f"{count_text(facts['component_count'], 'component')}, "
            f"{size_text(facts['stored_nbytes'])} stored",
        ),
        ("manifest", f"{size_text(manifest['nbytes'])} at {manifest['offset']:,}"),
        ("digests", _coverage(facts)),
        ("padding", size_text(facts["padding_nbytes"])),
        ("dead", size_text(facts["dead_nbytes"])),
    ]
    if facts["shared_nbytes"]:
        rows.append(("shared", f"{size_text(facts['shared_nbytes'])} counted more than once"))
    if commit is not None:
        rows.append(("commit", f"end {commit['end']:,}, previous end {commit['prev']:,}"))
    terminal.facts(rows)
    tables = (
        ("type", "components", "types"),
        ("format", "objects", "formats"),
        ("encoding", "components", "encodings"),
    )
    for title, unit, key in tables if facts["component_count"] else ():
        terminal.line()
        columns = (Column(title), Column(unit, numeric=True), Column("size", numeric=True))
        terminal.table(
            columns,
            [(t["name"], f"{t['count']:,}", size_text(t["nbytes"])) for t in facts[key]],
        )
    show_attributes(terminal, facts["attributes"])


def _exact_size(nbytes: int) -> str:
    return f"{size_text(nbytes)} ({nbytes:,} bytes)" if nbytes >= 1000 else size_text(nbytes)


def _magic(facts: Mapping[str, Any]) -> str:
    return _MAGICS.get(facts["container"], "another magic")


def _coverage(facts: Mapping[str, Any]) -> str:
    count = f"{facts['digested_count']:,} of {count_text(facts['component_count'], 'component')}"
    algorithms = ", ".join(f"{found['name']} {found['count']:,}" for found in facts["digests"])
    return f"{count}: {algorithms}" if algorithms else count


def show_attributes(terminal: Terminal, attributes: Mapping[str, Any]) -> None:
    """Print attributes, long values cut; `attributes` are spelled as JSON."""
    if not attributes:
        return
    terminal.line()
    terminal.line(Styled("attributes", "bold"))
    shown = list(attributes.items())[:_ATTRIBUTES_SHOWN]
    terminal.facts([(f"  {key}", json_text(value, _VALUE_CHARACTERS)) for key, value in shown])
    if len(shown) < len(attributes):
        terminal.line(f"  and {len(attributes) - len(shown):,} more; --json shows all")
