"""The page of a model in a notebook, in a frame that may only run its own script."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentTypeError, ArgumentValueError, counted, describe
from ztensor.insight.analysis.document import Insight
from ztensor.insight.analysis.examining import examine
from ztensor.insight.page.report import html_of, sentence_of
from ztensor.insight.text import short_repr
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable


_MOST_BYTES = 2_000_000  # a notebook stores its outputs
_HEIGHTS = range(200, 10_001)


class ModelView:
    """The result of `ztensor.view`: a page in a notebook, a sentence elsewhere.

    Args:
        insight: the result of `ztensor.examine`.
        height: height of the frame in pixels.

    Attributes:
        insight: the insight, with its findings.
        height: height of the frame in pixels.

    Raises:
        ArgumentTypeError: `insight` is something else.
        ArgumentValueError: the height is out of range.
    """

    def __init__(self, insight: Insight, height: int = 640) -> None:
        if not isinstance(insight, Insight):
            raise ArgumentTypeError(
                "ModelView needs an Insight",
                expected="the result of ztensor.examine",
                found=describe(insight, 40),
            )
        _require_height(height)
        self.insight = insight
        self.height = height

    def __repr__(self) -> str:
        """Return the number of tensors and findings."""
        tensors = [counted(len(model.objects), "tensor") for model in self.insight.models]
        findings = counted(len(self.insight.findings), "finding")
        return short_repr("insight.ModelView", [*tensors, findings], ".insight")

    def _repr_html_(self) -> str:
        # The frame has no origin: it cannot reach the notebook, its cookies or the network. The
        # page's own policy forbids requests, too. Viewers without frames show the sentence.
        page = html.escape(html_of(self.insight, _MOST_BYTES))
        said = html.escape(sentence_of(self.insight)[:2000])
        return (
            f'<iframe title="{html.escape(self.insight.models[0].name)}" sandbox="allow-scripts" '
            f'width="100%" height="{self.height}" style="border:0" srcdoc="{page}"></iframe>'
            f'<p class="tex2jax_ignore mathjax_ignore"><code>{said}</code></p>'
        )


def view(
    source: Readable,
    other: Readable | None = None,
    names: str | Iterable[str] | None = None,
    *,
    height: int = 640,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ModelView:
    """Show a model in a notebook, or two beside each other: the page of `report` in a frame.

    Everything is read once. The page is stored in the notebook: it needs no server and no network,
    now or later. It takes about 2 MB at most, or more for very many tensors, and lists omitted
    content. The frame is isolated from the notebook.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        other: a second model, to compare the first with.
        names: the tensors, by their names in either model; all by default.
        height: height of the frame in pixels.
        threads: see `ztensor.examine`.
        progress: likewise.

    Raises:
        ArgumentValueError: the height is out of range.
        ObjectNotFoundError: a name is in neither model.
        FormatError: the manifest of a file is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    _require_height(height)  # before anything is read
    return ModelView(examine(source, other, names, threads=threads, progress=progress), height)


def _require_height(height: int) -> None:
    if height not in _HEIGHTS:
        raise ArgumentValueError(
            "the height of the frame is out of range",
            expected="200 to 10,000",
            found=describe(height),
        )
