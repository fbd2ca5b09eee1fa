"""The only module that prints: lines, tables, JSON and progress, all escaped.

Texts are escaped here and not by the verbs, so no verb can forget it. Secrets in URLs are removed.
No escape sequence is ever printed: neither markup nor colour.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
import unicodedata
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ztensor.cli.exits import ExitCode, code_of
from ztensor.cli.spelling import cut, visible
from ztensor.errors import Reason, ZTensorError, counted, secrets_of, without_secrets
from ztensor.remote.requested import requests_made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Progress = Callable[[int, int], None]

# Shorter work shows no bar: it would flicker.
PATIENCE_SECONDS = 0.3
# On a terminal longer cells are cut.
_CELL_CHARACTERS = 300
# Longer cells do not align others: with one name of megabytes every line would be that long.
_ALIGNED_CELLS = 80
_FACT_CHARACTERS = 30
# A shorter part of a URL is not a key, and may occur in a tensor's name.
_SECRET_CHARACTERS = 8
_NARROWEST_FIRST_COLUMN = 16
_SEPARATORS = "._/-"  # of words in names: a long one is folded after them


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        title: the heading.
        numeric: whether cells are aligned to the right.
        optional: whether a narrow terminal may drop the column if all of its cells are equal.
    """

    title: str
    numeric: bool = False
    optional: bool = False


class Terminal:
    """Standard output and standard error, as the options of a verb ask.

    Args:
        json: results are JSON; nothing else goes to standard output.
        quiet: only errors are printed.

    Attributes:
        interactive: whether people read the output on a terminal.
        exit_code: the highest code so far.
        has_result: whether JSON was printed.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.wants_json = json
        self.quiet = quiet
        self.interactive = _is_terminal(sys.stdout)
        self.exit_code = ExitCode.OK
        self.has_result = False
        self._hidden: dict[str, str] = {}
        for stream in (sys.stdout, sys.stderr):
            # A letter that the terminal lacks becomes an escape, not an exception.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @property
    def wants_text(self) -> bool:
        """Return whether results are printed for people."""
        return not (self.wants_json or self.quiet)

    @property
    def width(self) -> int:
        """Return the width of the terminal in columns; `COLUMNS` overrides it."""
        return max(40, shutil.get_terminal_size().columns)

    def hide(self, words: Iterable[str]) -> None:
        """Remove the secrets of URLs in `words` from all output."""
        for word in words:
            secrets = secrets_of(word)
            if secrets:
                self._hidden[word] = without_secrets(word)
            for secret in secrets:
                if len(secret) >= _SECRET_CHARACTERS:
                    self._hidden[secret] = ""

    def shown(self, text: str) -> str:
        """Return a text as it is printed: on one line, escaped, without secrets."""
        for secret, instead in self._hidden.items():
            text = text.replace(secret, instead)
        return visible(text)

    # --- Results ----------------------------------------------------------------------------

    def line(self, text: str = "") -> None:
        """Print one line for people."""
        if self.wants_text:
            self._print([text])

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values in two columns."""
        limit = _FACT_CHARACTERS if self.interactive else sys.maxsize
        names = [cut(self.shown(name), limit) for name, _ in facts]
        width = min(max(map(_width, names), default=0), _FACT_CHARACTERS)
        for name, (_, fact) in zip(names, facts, strict=True):
            self.line(f"{name}{' ' * (width - _width(name))}  {fact}")

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]]
    ) -> list[tuple[str, str]]:
        """Print a table, its columns aligned.

        On a terminal that is too narrow, optional columns with equal cells are left out, and the
        first column is folded. In a pipe nothing is shortened.

        Returns:
            Title and cell of each column that was left out.
        """
        if not self.wants_text:
            return []
        limit = _CELL_CHARACTERS if self.interactive else sys.maxsize
        cells = [[cut(self.shown(cell), limit) for cell in row] for row in rows]
        widths = [
            min(max([len(column.title), *(_width(row[index]) for row in cells)]), _ALIGNED_CELLS)
            for index, column in enumerate(columns)
        ]
        kept = list(range(len(columns)))
        left_out = []
        if self.interactive:
            for index in reversed(range(1, len(columns))):
                if _total(widths, kept) <= self.width or not columns[index].optional:
                    continue
                if len({row[index] for row in cells}) == 1:
                    kept.remove(index)
                    left_out.append((columns[index].title, cells[0][index]))
            room = self.width - _total(widths, kept[1:]) - 2
            widths[0] = min(widths[0], max(room, _NARROWEST_FIRST_COLUMN))
        lines = [_aligned(columns, [column.title for column in columns], widths, kept)]
        for row in cells:
            first, *rest = _folded(row[0], widths[0]) if self.interactive else row[:1]
            lines.append(_aligned(columns, [first, *row[1:]], widths, kept))
            lines.extend(f"  {more}" for more in rest)
        self._print(lines)
        return left_out[::-1]

    def result(self, value: Any) -> None:
        """Print a verb's result with --json."""
        if self.wants_json:
            self.has_result = True
            layout: dict[str, Any] = {"indent": 2} if self.interactive else {}
            # ASCII only, so that no escape sequence of a terminal is printed.
            text = json.dumps(value, allow_nan=False, **layout)
            for secret, instead in self._hidden.items():
                text = text.replace(json.dumps(secret)[1:-1], json.dumps(instead)[1:-1])
            sys.stdout.write(text + "\n")

    # --- Messages ---------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a remark to standard error, unless quiet."""
        if not self.quiet:
            self._print([text], sys.stderr)

    def problem(self, text: str) -> None:
        """Print a problem among the results, or to standard error with --quiet."""
        if self.quiet:
            self._print([text], sys.stderr)
        else:
            self.line(text)

    def error(self, error: BaseException, *, details: Sequence[str] = ()) -> None:
        """Print an error to standard error, and set the exit code of its family."""
        self.fail(code_of(error))
        reason = getattr(error, "reason", None)  # the name of a page in docs/errors/
        page = "" if reason in (None, Reason.ARGUMENT) else f" [{reason}]"
        lines = [f"error: {message_of(error)}{page}", *(f"  {detail}" for detail in details)]
        self._print(lines, sys.stderr)

    def fail(self, code: ExitCode) -> None:
        """Let the command end with `code`, unless a higher one was given before."""
        self.exit_code = max(self.exit_code, code)

    @contextlib.contextmanager
    def progress(self, label: str) -> Iterator[Progress | None]:
        """Give a function that shows the progress of bytes and their rate, or None.

        Work on URLs also shows the number of requests. The bar is on standard error and is removed
        at the end; it appears only on a terminal, and only for longer work.
        """
        if self.quiet or not _is_terminal(sys.stderr):
            yield None
            return
        bar: Any = None
        before = requests_made()
        due = time.monotonic() + PATIENCE_SECONDS

        def show(done: int, total: int) -> None:
            nonlocal bar
            count = requests_made() - before
            requests = counted(count, "request") if count else ""
            if bar is None:
                if done >= total or time.monotonic() < due:
                    return
                from tqdm import tqdm

                name = cut(self.shown(label), self.width // 3)
                bar = tqdm(
                    desc=name,
                    total=total,
                    initial=done,
                    unit="B",
                    unit_scale=True,
                    leave=False,
                    postfix=requests,
                )
            bar.set_postfix_str(requests, refresh=False)
            bar.update(done - bar.n)

        try:
            yield show
        finally:
            if bar is not None:
                bar.close()

    # --- The streams ------------------------------------------------------------------------

    def _print(self, lines: Iterable[str], stream: IO[str] | None = None) -> None:
        stream = sys.stdout if stream is None else stream
        stream.write("".join(f"{self.shown(line)}\n" for line in lines))

    def finish(self) -> None:
        """Flush all output, so that a full disk or closed pipe is noticed."""
        sys.stdout.flush()
        try:
            sys.stderr.flush()
        except OSError:  # it cannot be reported
            let_go(sys.stderr)


def let_go(stream: IO[str]) -> None:
    """Redirect a stream to the null device: Python flushes it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def message_of(error: BaseException) -> str:
    """Return the message of an error; advice for code is marked as such."""
    if isinstance(error, ZTensorError):
        advice = f"; in Python, {error.in_python}" if error.in_python else ""
        return f"{error.told()}{advice}"
    return str(error) or type(error).__name__


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


# --- Columns --------------------------------------------------------------------------------


def _width(text: str) -> int:
    """Return the width of a text in cells: two for wide letters, none for marks."""
    if text.isascii():
        return len(text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me") for character in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + 2 * (len(kept) - 1)


def _aligned(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], kept: Sequence[int]
) -> str:
    parts = []
    for index in kept:
        blank = " " * (widths[index] - _width(cells[index]))
        parts.append(blank + cells[index] if columns[index].numeric else cells[index] + blank)
    return "  ".join(parts).rstrip(" ")


def _folded(text: str, width: int) -> list[str]:
    """Fold a text into lines of at most `width` cells, or `width - 2` from the second on.

    A line ends after a separator of names if its second half has one.
    """
    if _width(text) <= width:
        return [text]
    lines = [""]
    taken = 0
    for character in text:
        cells = _width(character)
        if taken + cells > (width if len(lines) == 1 else width - 2):
            line = lines[-1]
            end = 1 + max(map(line.rfind, _SEPARATORS))
            end = end if 2 * end > len(line) else len(line)
            lines[-1:] = [line[:end], line[end:]]
            taken = _width(line[end:])
        lines[-1] += character
        taken += cells
    return lines
