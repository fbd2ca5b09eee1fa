"""What is looked at: one model or two, and what a page may ask of them.

Nothing is read until it is asked for. Before and after every answer the files are compared with
what they were when they were opened: what changed meanwhile is said, and never mixed.
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
from ztensor.insight.analysis.insight import looked_alone
from ztensor.insight.analysis.singular import singular_values
from ztensor.insight.analysis.slicing import Cut, seen
from ztensor.insight.analysis.statistics import Asked, survey
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
    """One open model or two, as a page sees them. Its methods may be called by several threads.

    Args:
        readers: of the model, and of another one which it is compared with.
        files: theirs, as they were when they were opened.
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
        """Return what is known so far: the outline, or everything once it was examined."""
        with self._lock:
            if self._insight is None:
                self._insight = self._unchanged(lambda: outline(*self._readers))
            return self._insight

    def page(self) -> tuple[str, str]:
        """Return the page, and the policy it needs, with what is known so far.

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
        """Look at all tensors; `page` then has what was found.

        Args:
            progress: as `examine` takes it; what it raises ends the work.
        """
        found = self._unchanged(lambda: examine(*self._readers, threads=2, progress=progress))
        with self._page_lock, self._lock:
            self._insight, self._is_whole, self._page = found, True, None

    def tensor(self, number: int, index: int, check: Check) -> dict[str, Any]:
        """Return the numbers of one tensor, and what is odd about it.

        Args:
            number: 0 of the first model, 1 of the second.
            index: its place in the document.
            check: called often; what it raises ends the work.
        """
        reader, name = self._chosen(number, index)
        if self._is_whole:
            return _told({"detail": detail_of(self.insight.models[number].stats[index])})
        damage: dict[str, FormatError] = {}

        def look() -> Any:
            asked = Asked(tiles=TILES)
            return survey(reader, [name], asked, damage.__setitem__, 1, lambda *_: check())

        stats = self._unchanged(look)[1][name]
        found = findings_of([looked_alone(stats, damage.get(name))], number)
        told = [
            {"rule": one.rule, "level": one.level, "text": visible(one.text)[:1000]}
            for one in found
        ]
        return _told({"detail": detail_of(stats), "findings": told})

    def pair(self, row: int, check: Check) -> dict[str, Any]:
        """Return how the tensors of a row of two models differ.

        Args:
            row: its place in the document's `diff`.
            check: as `tensor` takes it.
        """
        insight = self.insight
        if not 0 <= row < len(insight.pairs):
            raise ArgumentValueError("there is no such row", found=str(row))
        pair = insight.pairs[row]
        if pair.kind == "not looked at" and pair.a is not None and pair.b is not None:
            names = (insight.models[0].objects[pair.a].name, insight.models[1].objects[pair.b].name)
            readers, before = self._readers, pair
            pair = self._unchanged(
                lambda: compared(readers[0], readers[1], before, names, lambda *_: check())
            )
        return _told(row_of(pair))

    def slice(
        self, number: int, index: int, query: Mapping[str, str], check: Check
    ) -> dict[str, Any]:
        """Return the map of a part of a tensor.

        Args:
            number: as `tensor` takes it.
            index: likewise.
            query: which part, as `cut_of` takes it.
            check: likewise.
        """
        reader, name = self._chosen(number, index)
        cut = cut_of(query)
        found = self._unchanged(lambda: seen(reader, name, cut, TILES, check))
        told = channels_of(found.channels) | {"shape": list(found.shape)}
        values = None if found.values is None else [plain(value) for value in found.values]
        return _told(told | {"values": values})

    def singular(self, number: int, index: int, check: Check) -> dict[str, Any]:
        """Return the singular values of a tensor, as a matrix.

        Args:
            number: as `tensor` takes it.
            index: likewise.
            check: likewise.
        """
        reader, name = self._chosen(number, index)
        found = self._unchanged(lambda: singular_values(reader, name, check))
        fields = dataclasses.asdict(found)
        values = [plain(value) for value in fields.pop("values")]
        return _told(fields | {"values": values[:1024], "count": len(values)})

    def _chosen(self, number: int, index: int) -> tuple[ObjectReader, str]:
        if not 0 <= number < len(self._readers):
            raise ArgumentValueError("there is no such model", found=str(number))
        objects = self.insight.models[number].objects
        if not 0 <= index < len(objects):
            raise ArgumentValueError("there is no such tensor", found=str(index))
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


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with five digits of each number."""
    told: dict[str, Any] = short(answer)
    return told


def cut_of(query: Mapping[str, str]) -> Cut:
    """Return the part that a query names, of plain bounded integers.

    Args:
        query: `rows`, absent of a vector; `columns`; `at`, with commas between; and `top`,
            `bottom`, `left`, `right`.

    Raises:
        ArgumentValueError: a number is missing, is none, or is out of bounds.
    """
    rows = integer(query["rows"]) if "rows" in query else None
    at = tuple(integer(one) for one in query.get("at", "").split(",", 64))
    top, bottom, left, right = (
        integer(query.get(name)) for name in ("top", "bottom", "left", "right")
    )
    return Cut(rows, integer(query.get("columns")), at, ((top, bottom), (left, right)))
