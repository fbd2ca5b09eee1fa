"""The browser on the screen: a search, the names, one tensor, findings; Textual draws it."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static
from textual.worker import Worker, get_current_worker

from ztensor.analysis.examining import examine
from ztensor.analysis.statistics import stats
from ztensor.browsing.lines import Lines, described, facts_text
from ztensor.browsing.lists import Names
from ztensor.errors import ZTensorError, without_secrets
from ztensor.model.showing import counted, shape_text, shown_name, size_text, visible
from ztensor.reading.watching import OpenedFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.analysis.insight import Insight
    from ztensor.analysis.spreads import Histogram
    from ztensor.analysis.statistics import TensorStats
    from ztensor.reading.reader import ObjectReader

_STEPS = 5
_PATIENCE_SECONDS = 0.15  # a tensor is passed by before it is read
WATCH_SECONDS = 1.0
_WATCHED = 100  # files of a set that are looked at for changes each time, in turn
_FINDINGS = 200
_KEYS = "/ search  t tree  f findings  Tab side  q quit"
_NUMBERS = "min max mean std rms crest kurtosis zeros nans infs"
_RARE = ("zeros", "nans", "infs")  # which are said where there are any


class Left(Exception):  # no error: what was computed is no longer wanted
    """Ends a computation whose tensor was left."""


class Browser(App[None]):
    """A model in the terminal.

    Args:
        reader: the model; the caller closes it.
    """

    TITLE = "ztensor"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#names"
    CSS = """
    Screen { layout: vertical; }
    #head, #foot, #change { height: 1; padding: 0 1; }
    #head { text-style: bold; }
    #foot { color: $text-muted; }
    #change { display: none; text-style: reverse; }
    #search { height: 1; border: none; padding: 0 1; }
    #left { width: 55%; }
    #names { scrollbar-size: 1 1; overflow-x: hidden; }
    #right { width: 45%; padding: 0 1; border-left: solid $panel; scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search"),
        Binding("t", "tree", "Tree"),
        Binding("f", "findings", "Findings"),
        Binding("escape", "leave", "Back", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, reader: ObjectReader) -> None:
        super().__init__()
        self.reader = reader
        self.lines = Lines(list(reader))
        self._files = OpenedFiles([reader])
        self._change = Static(id="change")
        self._place: int | None = None
        self._insight: Insight | None = None

    def compose(self) -> ComposeResult:
        """Yield what is on the screen."""
        yield Static(Text(self._head()), id="head")
        yield self._change
        with Horizontal():
            with Vertical(id="left"):
                yield Input(placeholder="search", id="search", select_on_focus=False)
                yield Names(self.lines, self._facts)
            with VerticalScroll(id="right"):
                yield Static(id="tensor")
        yield Static(Text(_KEYS), id="foot")

    def on_mount(self) -> None:
        """Begin with the first tensor."""
        self.query_one(Names).refill()
        self.set_interval(WATCH_SECONDS, self._watch)

    def _head(self) -> str:
        objects = self.reader.objects
        name = os.path.basename(without_secrets(objects.name).rstrip("/\\"))
        size = "" if objects.is_set else f", {size_text(objects.nbytes)}"
        return f"{shown_name(name, 60)}: {counted(len(self.lines.names), 'tensor')}{size}"

    def _facts(self, name: str) -> str:
        try:
            return facts_text(self.reader, name)
        except ZTensorError:  # of this one; what is wrong is said where it is chosen
            return "?"

    # --- The file -------------------------------------------------------------------------------

    def _watch(self) -> None:
        changed = self._files.changed(_WATCHED)
        self._change.display = changed is not None
        if changed:
            name, what = changed
            self._change.update(
                Text(f"{shown_name(name, 30)} {what}: this is of before; open it again")
            )

    # --- The names ------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Go to the search."""
        self.query_one("#search", Input).focus()

    def action_leave(self) -> None:
        """Leave the search, or the findings."""
        self.query_one(Names).focus()
        self._show(is_again=True)

    def action_tree(self) -> None:
        """Change between list and tree."""
        self.lines.as_tree(is_tree=not self.lines.is_tree)
        self.query_one(Names).refill(self.lines.at_of(self._place))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while it is typed."""
        self.lines.search(event.value)
        self.query_one(Names).refill()
        is_all = self.lines.found == len(self.lines.names)
        foot = _KEYS if is_all else f"{self.lines.found:,} found  Esc list  {_KEYS}"
        self.query_one("#foot", Static).update(Text(foot))

    def on_input_submitted(self) -> None:
        """Go to what was found."""
        self.query_one(Names).focus()

    def on_names_moved(self) -> None:
        """Show the tensor under the cursor."""
        self._show()

    # --- One tensor -----------------------------------------------------------------------------

    def _show(self, *, is_again: bool = False) -> None:
        line = self.query_one(Names).line
        place = None if line is None else line.place
        if place == self._place and place is not None and not is_again:
            return
        self._place = place
        self.workers.cancel_group(self, "looking")
        if line is None:
            self._say(Text("nothing found"))
        elif place is None:
            self._say(Text(f"{line.text}: {counted(line.below, 'tensor')}\nEnter opens it"))
        else:
            name = self.lines.names[place]
            self._say(self._known(name) + Text("\n\n..."))
            self._look(name)

    def _say(self, text: Text) -> None:
        self.query_one("#tensor", Static).update(text)

    def _known(self, name: str) -> Text:
        text = Text.assemble((shown_name(name) or "(empty name)", "bold"), "\n")
        try:
            return text + lines_of(described(self.reader, name))
        except ZTensorError as error:
            return text + Text(visible(error.told()))

    @work(thread=True, exclusive=True, group="looking", exit_on_error=False)
    def _look(self, name: str) -> None:
        worker: Worker[None] = get_current_worker()
        with contextlib.suppress(Left):
            text = self._known(name) + Text("\n\n")
            try:
                wait(worker)
                found = stats(self.reader, [name], bins=30, progress=leaving(worker), threads=1)
                text += stats_text(found[name])
            except ZTensorError as error:
                text += Text(visible(error.told()))
            if not worker.is_cancelled:
                self.call_from_thread(self._say, text)

    # --- Findings -------------------------------------------------------------------------------

    def action_findings(self) -> None:
        """Look at all tensors, and say what is odd."""
        self.workers.cancel_group(self, "looking")
        self._place = None
        if self._insight is not None:
            self._say(findings_text(self._insight))
        else:
            self._say(Text("reading all tensors; Esc stops it"))
            self._examine()

    @work(thread=True, exclusive=True, group="looking", exit_on_error=False)
    def _examine(self) -> None:
        worker: Worker[None] = get_current_worker()

        def progress(done: int, total: int) -> None:
            leaving(worker)(done, total)
            text = f"reading all tensors: {size_text(done)} of {size_text(total)}; Esc stops it"
            self.call_from_thread(self._say, Text(text))

        with contextlib.suppress(Left):
            try:
                insight = examine(self.reader, progress=progress, threads=1)
            except ZTensorError as error:
                self.call_from_thread(self._say, Text(visible(error.told())))
                return
            self._insight = insight
            if not worker.is_cancelled:
                self.call_from_thread(self._say, findings_text(insight))


def wait(worker: Worker[None]) -> None:
    """Wait a little, as long as a tensor is not left.

    Raises:
        Left: it is.
    """
    for _ in range(_STEPS):
        if worker.is_cancelled:
            raise Left
        time.sleep(_PATIENCE_SECONDS / _STEPS)


def leaving(worker: Worker[None]) -> Callable[[int, int], None]:
    """Return a progress function that ends what it is told of once nobody wants it."""

    def progress(done: int, total: int) -> None:
        del done, total
        if worker.is_cancelled:
            raise Left

    return progress


def lines_of(facts: list[tuple[str, str]]) -> Text:
    """Return labels and texts, one in a line."""
    width = max((len(label) for label, _ in facts), default=0)
    return Text("\n").join(
        Text.assemble((f"{label:{width}}  ", "dim"), text) for label, text in facts
    )


def stats_text(one: TensorStats) -> Text:
    """Return the numbers of a tensor, and its histogram."""
    if one.note is not None:
        return Text(visible(one.note))
    facts = []
    for name in _NUMBERS.split():
        value = getattr(one, name)
        if value is not None and (value or name not in _RARE):
            text = f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
            facts.append((name, shown_name(text, 40)))
    said = lines_of(facts)
    return said if one.histogram is None else said + Text("\n\n") + bars(one.histogram)


def bars(histogram: Histogram, height: int = 4) -> Text:
    """Return a histogram of some lines, with its ends below."""
    most = max(histogram.counts, default=0) or 1
    eighths = [-(-count * height * 8 // most) for count in histogram.counts]
    rows = [
        "".join(" ▁▂▃▄▅▆▇█"[max(min(one - 8 * row, 8), 0)] for one in eighths)
        for row in reversed(range(height))
    ]
    low, high = (f"{edge:.4g}" for edge in (histogram.edges[0], histogram.edges[-1]))
    ends = low + high.rjust(max(len(eighths) - len(low), len(high) + 1))
    return Text("\n".join([*rows, ends]))


def findings_text(insight: Insight) -> Text:
    """Return the findings, the worst first."""
    findings = insight.findings
    text = Text.assemble((counted(len(findings), "finding"), "bold"), "\n")
    shapes = {one.name: one.shape for one in insight.models[0].objects}
    for one in findings[:_FINDINGS]:
        shape = shape_text(shapes[one.tensor])
        text.append(f"\n{one.level} ", "bold")
        text.append(f"{shown_name(one.tensor, 120)} {shape}\n  {visible(one.text)} [{one.rule}]")
    if len(findings) > _FINDINGS:
        text.append(f"\n\nand {len(findings) - _FINDINGS:,} more")
    return text
