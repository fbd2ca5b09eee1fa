"""A sheet of one object, and its HTML of less than 50 kB."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING, NamedTuple

from ztensor.insight.text import shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_ROWS = 200
MOST_BYTES = 48_000
PATIENCE_SECONDS = 0.03  # time limit for further rows
_LEAST_ROWS = 20  # least number of rows
_CHARACTERS = 160  # most characters of a text
# Notebooks typeset formulas in outputs; texts of files are excluded, by classes and by `<code>`.
_PLAIN = "tex2jax_ignore mathjax_ignore"
# Alignment by style and attribute, as notebooks override or strip either.
_LEFT = 'style="text-align:left"'
_RIGHT = 'align="right"'
_ONE_LINE = 'style="white-space:nowrap"'
_LEFT_IN_ONE_LINE = 'style="text-align:left;white-space:nowrap"'


class FileText(str):
    """A text of a file, shown as code to tell it from our own words."""

    __slots__ = ()


class Number(str):
    """A number as text, aligned to the right."""

    __slots__ = ()


class Table(NamedTuple):
    """A table.

    Attributes:
        title: its title.
        columns: the titles of the columns.
        rows: the rows, consumed as needed.
        total: the number of all rows.
    """

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    total: int


class Sheet(NamedTuple):
    """The display of one object.

    Attributes:
        kind: the name of its class.
        of: its name in the file.
        facts: labels and texts.
        tables: tables below the facts.
        ways: expressions that return more.
    """

    kind: str
    of: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    ways: str = ""


def number(value: float | None) -> Number:
    """Return a number for a table: all digits of integers, six of others, empty for None."""
    if value is None:
        return Number("")
    return Number(f"{value:,}" if isinstance(value, int) else f"{value:.6g}")


def html_of(sheet: Sheet) -> str:
    """Return the HTML of a sheet: UTF-8 of less than 50,000 bytes, no script, no colour."""
    of = f" {_text(FileText(sheet.of))}" if sheet.of else ""
    pieces = [
        f'<div class="ztensor-sheet {_PLAIN}" style="font-size:13px;line-height:1.45">',
        f'<p style="margin:0 0 4px"><strong>{_text(sheet.kind)}</strong>{of}</p>',
    ]
    end = ([f"<p>More: <code>{_text(sheet.ways)}</code></p>"] if sheet.ways else []) + ["</div>"]
    left = MOST_BYTES - sum(map(_nbytes, pieces)) - sum(map(_nbytes, end))
    for table in (*([_facts(sheet)] if sheet.facts else []), *sheet.tables):
        lines = list(_table(table, left, is_facts=not table.columns))
        left -= sum(map(_nbytes, lines))
        pieces += lines
    return "".join([*pieces, *end])


def _facts(sheet: Sheet) -> Table:
    return Table("facts", (), sheet.facts, len(sheet.facts))


def _table(table: Table, nbytes: int, *, is_facts: bool) -> Iterator[str]:
    """Yield the HTML of a table of at most about `nbytes`, and the number of omitted rows."""
    if not is_facts:
        yield f'<p style="margin:6px 0 2px">{_text(table.title)}</p>'
        yield (
            f'<div role="region" tabindex="0" aria-label="{_text(table.title)}" '
            'style="max-height:24em;overflow:auto">'
        )
    yield '<table cellpadding="3" style="margin:0">'
    if table.columns:
        titles = "".join(f'<th scope="col" {_LEFT}>{_text(title)}</th>' for title in table.columns)
        yield f"<thead><tr>{titles}</tr></thead>"
    yield "<tbody>"
    count, due = 0, 0.0
    for row in table.rows:
        due = (
            due or time.monotonic() + PATIENCE_SECONDS
        )  # the first row may compute data for all rows
        text = _row(row, is_facts=is_facts)
        nbytes -= _nbytes(text)
        if nbytes < 1000:  # reserved for the rest
            break
        yield text
        count += 1
        if count >= MOST_ROWS or (count >= _LEAST_ROWS and time.monotonic() > due):
            break
    yield "</tbody></table>" if is_facts else "</tbody></table></div>"
    if table.total > count:
        yield f'<p style="margin:2px 0">and {table.total - count:,} more</p>'


def _row(cells: Sequence[str], *, is_facts: bool) -> str:
    first, *rest = cells
    if is_facts:
        head = f'<th scope="row" style="text-align:left;font-weight:normal">{_text(first)}</th>'
    else:
        head = _cell(first)
    return f"<tr>{head}{''.join(map(_cell, rest))}</tr>"


def _cell(text: str) -> str:
    # By style, too: rules of notebooks override the attribute.
    if isinstance(text, FileText) or " " not in text:
        how = _RIGHT if isinstance(text, Number) else _LEFT
    else:
        how = f"{_RIGHT} {_ONE_LINE}" if isinstance(text, Number) else _LEFT_IN_ONE_LINE
    return f"<td {how}>{_text(text)}</td>"


def _text(text: str) -> str:
    shown = html.escape(shown_name(text, _CHARACTERS))
    return f"<code>{shown}</code>" if isinstance(text, FileText) and text else shown


def _nbytes(text: str) -> int:
    return len(text.encode())
