"""A list of any length of which only the lines that are seen are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from ztensor.browsing.lines import Line, Lines

_LEAST_FACTS = 60  # cells of a list that is wide enough for type and shape


class Names(ScrollView, can_focus=True):
    """The lines; a cursor moves over them.

    Args:
        lines: what there is.
        facts: gives a few words on a tensor, by its name.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "move(-1000000000)", "First", show=False),
        Binding("end,G", "move(1000000000)", "Last", show=False),
        Binding("enter,space", "branch", "Open", show=False),
        Binding("right,l", "open(True)", "Open", show=False),
        Binding("left,h", "open(False)", "Close", show=False),
    ]

    class Moved(Message):
        """The cursor is on another line."""

    def __init__(self, lines: Lines, facts: Callable[[str], str]) -> None:
        super().__init__(id="names")
        self.lines = lines
        self.cursor = 0
        self._facts = facts

    @property
    def line(self) -> Line | None:
        """Return the line under the cursor; None where there is no line."""
        return self.lines[self.cursor] if len(self.lines) else None

    def refill(self, cursor: int = 0) -> None:
        """Draw other lines."""
        self.virtual_size = Size(self.size.width, len(self.lines))
        self.cursor = cursor
        self._move_to(cursor)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Take the new width."""
        self.virtual_size = Size(event.size.width, len(self.lines))

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        at = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if at >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        line = self.lines[at]
        style = self.rich_style
        if at == self.cursor:
            style += Style(reverse=True, bold=self.has_focus)
        return Strip([Segment(self._text(line, width), style)], width)

    def _text(self, line: Line, width: int) -> str:
        if line.place is None:
            mark = "- " if line.is_open else "+ "
            return fitted(f"{'  ' * line.depth}{mark}{line.text}", f"{line.below:,}", width)
        indent = "  " * line.depth + ("  " if self.lines.is_tree else "")
        facts = self._facts(self.lines.names[line.place]) if width >= _LEAST_FACTS else ""
        return fitted(indent + line.text, facts, width)

    def on_click(self, event: events.Click) -> None:
        """Choose the line that was clicked, and open a branch."""
        at = event.y + self.scroll_offset.y
        if at < len(self.lines):
            self._move_to(at)
            self.action_branch()

    def action_move(self, by: int) -> None:
        """Move the cursor by some lines."""
        self._move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a screen."""
        self._move_to(self.cursor + by * max(self.size.height - 1, 1))

    def action_branch(self) -> None:
        """Open or close the branch under the cursor."""
        self._open(None)

    def action_open(self, is_open: bool) -> None:  # noqa: FBT001  # as Textual calls actions
        """Open the branch under the cursor, or close it."""
        self._open(is_open)

    def _open(self, is_open: bool | None) -> None:  # noqa: FBT001
        if len(self.lines):
            self.lines.toggle(self.cursor, is_open=is_open)
            self.refill(self.cursor)

    def _move_to(self, at: int) -> None:
        self.cursor = max(min(at, len(self.lines) - 1), 0)
        self.scroll_to_region(
            Region(0, self.cursor, 1, 1), animate=False, immediate=True, force=True
        )
        self.refresh()
        self.post_message(self.Moved())


def fitted(text: str, right: str, width: int) -> str:
    """Return a text and one at the right in so many cells; the text is cut in its middle."""
    room = width - (cell_len(right) + 2 if right else 0)
    if cell_len(text) > room:
        tail = _last(text, room // 2)
        head = room - cell_len(tail) - 1
        text = set_cell_size(text, max(head, 0)) + "\u2026" + tail
    line = set_cell_size(text, room) + (f"  {right}" if right else "")
    return set_cell_size(line, width)


def _last(text: str, cells: int) -> str:
    at, taken = len(text), 0
    while at > 0 and taken + cell_len(text[at - 1]) <= cells:
        at -= 1
        taken += cell_len(text[at])
    return text[at:]
