"""A sheet: what is shown of one object, and the HTML of it, in less than 50 kB."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING, NamedTuple

from ztensor.insight.text import shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_ROWS = 200
MOST_BYTES = 48_000
PATIENCE_SECONDS = 0.03  # after which no further row is asked for
_LEAST_ROWS = 20  # which are shown however long they take
_CHARACTERS = 160  # of one text
# Notebooks set formulas in outputs: no text of a file is one. `<code>` says so, too, and it is
# left where classes are stripped.
_PLAIN = "tex2jax_ignore mathjax_ignore"
# Alignment is said so that it holds against the style of a notebook, and without any.
_LEFT = 'style="text-align:left"'
_RIGHT = 'align="right"'
_ONE_LINE = 'style="white-space:nowrap"'
_LEFT_IN_ONE_LINE = 'style="text-align:left;white-space:nowrap"'


class Said(str):
    """A text of a file: it is shown as code, so that nothing takes it for words of ours."""

    __slots__ = ()


class Number(str):
    """A number as text, which is put at the right."""

    __slots__ = ()


class Table(NamedTuple):
    """Rows of one kind.

    Attributes:
        title: what they are.
        columns: their titles.
        rows: as many as are wanted are taken from it.
        total: how many there are in all.
    """

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    total: int


class Sheet(NamedTuple):
    """What is shown of one object.

    Attributes:
        kind: the name of its class.
        of: which one it is, in the words of a file.
        facts: label and text of each.
        tables: below the facts.
        ways: what to call for more.
    """

    kind: str
    of: str = ""
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    ways: str = ""


def number(value: float | None) -> Number:
    """Return a number for a table: integers whole, others with six digits, nothing for None."""
    if value is None:
        return Number("")
    return Number(f"{value:,}" if isinstance(value, int) else f"{value:.6g}")


def html_of(sheet: Sheet) -> str:
    """Return the HTML of a sheet: UTF-8 of less than 50,000 bytes, no script, no colour."""
    of = f" {_text(Said(sheet.of))}" if sheet.of else ""
    pieces = [
        f'<div class="ztensor-sheet {_PLAIN}" style="font-size:13px;line-height:1.45">',
        f'<p style="margin:0 0 4px"><strong>{_text(sheet.kind)}</strong>{of}</p>',
    ]
    end = ([f"<p>More: <code>{_text(sheet.ways)}</code></p>"] if sheet.ways else []) + ["</div>"]
    left = MOST_BYTES - sum(map(_nbytes, pieces)) - sum(map(_nbytes, end))
    for table in (*([_facts(sheet)] if sheet.facts else []), *sheet.tables):
        found = list(_table(table, left, is_facts=not table.columns))
        left -= sum(map(_nbytes, found))
        pieces += found
    return "".join([*pieces, *end])


def _facts(sheet: Sheet) -> Table:
    return Table("facts", (), sheet.facts, len(sheet.facts))


def _table(table: Table, nbytes: int, *, is_facts: bool) -> Iterator[str]:
    """Yield a table that takes about `nbytes` at most, and how many rows are left out."""
    if not is_facts:
        yield f'<p style="margin:6px 0 2px">{_text(table.title)}</p>'
        yield (
            f'<div role="region" tabindex="0" aria-label="{_text(table.title)}" '
            'style="max-height:24em;overflow:auto">'
        )
    yield '<table cellpadding="3" style="margin:0">'
    if table.columns:
        titles = "".join(f'<th scope="col" {_LEFT}>{_text(one)}</th>' for one in table.columns)
        yield f"<thead><tr>{titles}</tr></thead>"
    yield "<tbody>"
    count, due = 0, 0.0
    for row in table.rows:
        due = due or time.monotonic() + PATIENCE_SECONDS  # the first row may make what all need
        text = _row(row, is_facts=is_facts)
        nbytes -= _nbytes(text)
        if nbytes < 1000:  # for what follows
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
    # By style: notebooks have rules of their own, which outdo the attribute that says the same.
    if isinstance(text, Said) or " " not in text:
        how = _RIGHT if isinstance(text, Number) else _LEFT
    else:
        how = f"{_RIGHT} {_ONE_LINE}" if isinstance(text, Number) else _LEFT_IN_ONE_LINE
    return f"<td {how}>{_text(text)}</td>"


def _text(text: str) -> str:
    shown = html.escape(shown_name(text, _CHARACTERS))
    return f"<code>{shown}</code>" if isinstance(text, Said) and text else shown


def _nbytes(text: str) -> int:
    return len(text.encode())
