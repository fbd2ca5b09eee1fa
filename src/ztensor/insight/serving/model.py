"""The open models, and the answers that a page requests.

Data is read on demand. Before and after every answer the files are compared with their state at
opening: a change is an error, so that no answer mixes two states.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor.errors import ArgumentValueError, FormatError, SourceError
from ztensor.ext import Lock, ObjectReader
from ztensor.insight.analysis.beside import compared
from ztensor.insight.analysis.document import (
    Insight,
    channels_of,
    detail_of,
    document_of,
    plain,
    row_of,
)
from ztensor.insight.analysis.examining import examine, outline
from ztensor.insight.analysis.findings import findings_of
from ztensor.insight.analysis.insight import subject_of
from ztensor.insight.analysis.singular import singular_values
from ztensor.insight.analysis.slicing import Cut, map_cut
from ztensor.insight.analysis.statistics import StatsOptions, survey
from ztensor.insight.page.packing import short
from ztensor.insight.page.report import live_page, sentence_of
from ztensor.insight.serving.guard import integer
from ztensor.insight.serving.watching import OpenedFiles
from ztensor.insight.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Check = Callable[[], None]

_T = TypeVar("_T")
TILES = 32, 64


class Viewed:
    """One open model or two, for a page. Its methods are thread-safe.

    Args:
        readers: the reader of the model, and of a model to compare it with.
        files: their files at opening.
    """

    def __init__(self, readers: Sequence[ObjectReader], files: OpenedFiles) -> None:
        self._readers = readers
        self._files = files
        self._insight: Insight | None = None
        self._is_whole = False
        self._lock = Lock()
        self._page: tuple[str, str] | None = None
        self._page_lock = Lock()

    @property
    def insight(self) -> Insight:
        """Return the current insight: the outline, or the complete one after `examine`."""
        with self._lock:
            if self._insight is None:
                self._insight = self._unchanged(lambda: outline(*self._readers))
            return self._insight

    def page(self) -> tuple[str, str]:
        """Return the page with the current insight, and its policy.

        Raises:
            SourceError: a file was changed, replaced or removed.
        """
        with self._page_lock:
            self._require_same()
            if self._page is None:
                insight, is_whole = self.insight, self._is_whole
                document = document_of(insight, has_details=False)
                document["is_examined"] = is_whole
                title = " and ".join(model.name for model in insight.models)
                self._page = live_page(document, title, sentence_of(insight))
            return self._page

    def examine(self, progress: Callable[[int, int], None]) -> None:
        """Examine all tensors, for later calls of `page`.

        Args:
            progress: see `ztensor.examine`; may raise to end the work.
        """
        insight = self._unchanged(lambda: examine(*self._readers, threads=2, progress=progress))
        with self._page_lock, self._lock:
            self._insight, self._is_whole, self._page = insight, True, None

    def tensor(self, number: int, index: int, check: Check) -> dict[str, Any]:
        """Return the details of one tensor, and its findings.

        Args:
            number: 0 for the first model, 1 for the second.
            index: its index in the document.
            check: called often; may raise to end the work.
        """
        reader, name = self._chosen(number, index)
        if self._is_whole:
            return _rounded({"detail": detail_of(self.insight.models[number].stats[index])})
        damage: dict[str, FormatError] = {}

        def look() -> Any:
            options = StatsOptions(tiles=TILES)
            return survey(reader, [name], options, damage.__setitem__, 1, lambda *_: check())

        stats = self._unchanged(look)[1][name]
        found = findings_of([subject_of(stats, damage.get(name))], number)
        findings = [
            {"rule": one.rule, "level": one.level, "text": visible(one.text)[:1000]}
            for one in found
        ]
        return _rounded({"detail": detail_of(stats), "findings": findings})

    def pair(self, row: int, check: Check) -> dict[str, Any]:
        """Return the differences of a pair of tensors.

        Args:
            row: its index in the document's `diff`.
            check: see `tensor`.
        """
        insight = self.insight
        if not 0 <= row < len(insight.pairs):
            raise ArgumentValueError("the row is out of range", found=str(row))
        pair = insight.pairs[row]
        if pair.kind == "not looked at" and pair.a is not None and pair.b is not None:
            names = (insight.models[0].objects[pair.a].name, insight.models[1].objects[pair.b].name)
            readers, before = self._readers, pair
            pair = self._unchanged(
                lambda: compared(readers[0], readers[1], before, names, lambda *_: check())
            )
        return _rounded(row_of(pair))

    def slice(
        self, number: int, index: int, query: Mapping[str, str], check: Check
    ) -> dict[str, Any]:
        """Return the map of a part of a tensor.

        Args:
            number: see `tensor`.
            index: see `tensor`.
            query: the part; see `cut_of`.
            check: see `tensor`.
        """
        reader, name = self._chosen(number, index)
        cut = cut_of(query)
        cut_map = self._unchanged(lambda: map_cut(reader, name, cut, TILES, check))
        facts = channels_of(cut_map.channels) | {"shape": list(cut_map.shape)}
        values = None if cut_map.values is None else [plain(value) for value in cut_map.values]
        return _rounded(facts | {"values": values})

    def singular(self, number: int, index: int, check: Check) -> dict[str, Any]:
        """Return the singular values of a tensor as a matrix.

        Args:
            number: see `tensor`.
            index: see `tensor`.
            check: see `tensor`.
        """
        reader, name = self._chosen(number, index)
        singular = self._unchanged(lambda: singular_values(reader, name, check))
        fields = dataclasses.asdict(singular)
        values = [plain(value) for value in fields.pop("values")]
        return _rounded(fields | {"values": values[:1024], "count": len(values)})

    def _chosen(self, number: int, index: int) -> tuple[ObjectReader, str]:
        if not 0 <= number < len(self._readers):
            raise ArgumentValueError("the model is out of range", found=str(number))
        objects = self.insight.models[number].objects
        if not 0 <= index < len(objects):
            raise ArgumentValueError("the tensor is out of range", found=str(index))
        return self._readers[number], objects[index].name

    def _unchanged(self, work: Callable[[], _T]) -> _T:
        self._require_same()
        found = work()
        self._require_same()
        return found

    def _require_same(self) -> None:
        if changed := self._files.changed():
            name, what = changed
            raise SourceError(
                f"the file {what} since it was opened; start `ztensor view` again", file=name
            )


def _rounded(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer rounded to five digits."""
    rounded: dict[str, Any] = short(answer)
    return rounded


def cut_of(query: Mapping[str, str]) -> Cut:
    """Return the part that a query selects.

    Args:
        query: `rows`, absent for a vector; `columns`; `at`, separated by commas; and `top`,
            `bottom`, `left`, `right`.

    Raises:
        ArgumentValueError: a number is missing, malformed or out of bounds.
    """
    rows = integer(query["rows"]) if "rows" in query else None
    at = tuple(integer(text) for text in query.get("at", "").split(",", 64))
    top, bottom, left, right = (
        integer(query.get(name)) for name in ("top", "bottom", "left", "right")
    )
    return Cut(rows, integer(query.get("columns")), at, ((top, bottom), (left, right)))
