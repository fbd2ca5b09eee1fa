"""One HTML file that shows a model: no network, no server, the same bytes for the same file."""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import importlib.resources
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, counted
from ztensor.ext import ALGORITHMS
from ztensor.insight.analysis.conditions import Met, require_conditions
from ztensor.insight.analysis.document import Insight
from ztensor.insight.analysis.examining import examine
from ztensor.insight.analysis.findings import Finding, not_looked_at
from ztensor.insight.page.packing import main_of, packed
from ztensor.insight.saving import write_file
from ztensor.typing import Progress, Readable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping


SCRIPTS = (
    "data.js",
    "colors.js",
    "lists.js",
    "pictures.js",
    "slices.js",
    "live.js",
    "tensor.js",
    "page.js",
)
_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)


@functools.cache
def page_text(name: str) -> str:
    """Return a file of `static/`, byte for byte.

    Args:
        name: the name of the file.
    """
    return (
        importlib.resources.files("ztensor.insight.page")
        .joinpath("static", name)
        .read_bytes()
        .decode()
    )


def html_of(insight: Insight, most: int | None = None) -> str:
    """Return the page of an insight; the same text for the same models.

    Args:
        insight: the result of `examine`.
        most: the approximate size in bytes; see `packed`.
    """
    title = " and ".join(model.name for model in insight.models)
    return page_of(insight.as_json(), title, sentence_of(insight), most)


def page_of(document: Mapping[str, Any], title: str, plain: str, most: int | None = None) -> str:
    """Return the page of a document.

    Args:
        document: a `ztensor-insight/1`.
        title: the title of the page.
        plain: the text shown without scripts.
        most: the approximate size in bytes; see `packed`.
    """
    main, details = packed(document, most)
    return _filled({"data": main, **details}, title, plain, _policy())


def live_page(document: Mapping[str, Any], title: str, plain: str) -> tuple[str, str]:
    """Return the page of a document that requests details from its server, and its policy.

    Args:
        document: a `ztensor-insight/1` without details, with the additional field `is_examined`.
        title: the title of the page.
        plain: the text shown without scripts.
    """
    policy = f"{_policy()}; connect-src 'self'"
    return _filled({"data": main_of(document)}, title, plain, policy), policy


def _policy() -> str:
    script, style = "".join(map(page_text, SCRIPTS)), page_text("page.css")
    return _POLICY.format(script=_sha256(script), style=_sha256(style))


def _filled(blocks: Mapping[str, str], title: str, plain: str, policy: str) -> str:
    style, script = page_text("page.css"), "".join(map(page_text, SCRIPTS))
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "plain": html.escape(plain),
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{block}</script>'
            for name, block in blocks.items()
        ),
        "script": script,
    }
    first, *pieces = page_text("page.html").split("{{")
    text = [first]
    for piece in pieces:  # one pass, so that inserted text is not expanded
        name, _, rest = piece.partition("}}")
        text += [parts[name], rest]
    return "".join(text)


def _sha256(text: str) -> str:
    _, _, digits = ALGORITHMS["sha256"].of([text.encode()]).partition(":")
    return base64.b64encode(bytes.fromhex(digits)).decode()


def sentence_of(insight: Insight) -> str:
    """Return the text shown without scripts.

    Args:
        insight: the result of `examine`.
    """
    facts = [f"{model.name}: {counted(len(model.objects), 'tensor')}" for model in insight.models]
    facts.append(counted(len(insight.findings), "finding"))
    worst = [finding for finding in insight.findings if finding.level == "error"][:20]
    names = [dict(zip((o.name for o in m.objects), m.shown, strict=True)) for m in insight.models]
    facts += [f"{names[finding.model][finding.tensor]}: {finding.text}" for finding in worst]
    return "; ".join(facts)


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """The report on one model or two.

    Attributes:
        insight: the result of `examine`.
        met: the requested conditions that are met, with their tensors.
    """

    insight: Insight
    met: tuple[Met, ...] = ()

    def page(self) -> bytes:
        """Return the page, which is the same for the same models."""
        return html_of(self.insight).encode()

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the page to a file and return its length in bytes."""
        return write_file(path, self.page())

    def findings(self) -> list[tuple[Finding, frozenset[int]]]:
        """Return the findings, each once, with the models they apply to; empty for one model."""
        models, pairs = self.insight.models, self.insight.pairs
        if len(models) == 1:
            return [(finding, frozenset()) for finding in self.insight.findings]
        of_pairs = not_looked_at(is_sampled=False, has_other=False)
        equal = {
            models[0].objects[pair.a].name
            for pair in pairs
            if pair.kind == "equal" and pair.a is not None
        }
        once: dict[tuple[str, str, str], tuple[Finding, set[int]]] = {}
        for finding in self.insight.findings:
            _, where = once.setdefault(
                (finding.rule, finding.tensor, finding.text), (finding, set())
            )
            is_both = finding.tensor in equal and finding.rule != "layer"
            if finding.rule not in of_pairs:
                where |= {0, 1} if is_both else {finding.model}
        return [(finding, frozenset(where)) for finding, where in once.values()]


def model_report(
    source: Readable,
    other: Readable | None = None,
    names: str | Iterable[str] | None = None,
    *,
    conditions: str | None = None,
    sample: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ModelReport:
    """Examine one model or two, and test conditions; see `report`.

    Args:
        source: see `report`, as for the other arguments.
        other: likewise.
        names: likewise.
        conditions: conditions separated by commas; see `require_conditions`.
        sample: likewise.
        threads: likewise.
        progress: likewise.

    Raises:
        ArgumentValueError: a condition is unknown, or cannot be tested.
        ZTensorError: what `report` raises.
    """
    if conditions is not None and sample is not None:
        raise ArgumentValueError("conditions cannot be tested on a sample")
    tests = (
        [] if conditions is None else require_conditions(conditions, has_other=other is not None)
    )
    insight = examine(source, other, names, sample=sample, threads=threads, progress=progress)
    return ModelReport(insight, tuple(met for test in tests for met in test(insight)))


def report(
    source: Readable,
    output: str | os.PathLike[str],
    other: Readable | None = None,
    names: str | Iterable[str] | None = None,
    *,
    sample: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Insight:
    """Write one HTML file that shows a model, or two beside each other.

    The file needs no network and no server. Nothing in a model can make it run code or send a
    request. It takes up to 3 MB for 1,000 tensors, and 1.5 kB for each further one; omitted content
    is listed in it. It is the same, byte for byte, for the same models.

    Args:
        source: an open reader, or anything `ztensor.open` takes.
        output: the path of the page; an existing file is replaced.
        other: a second model to compare with.
        names: the tensors, by their names in either model; all by default.
        sample: see `ztensor.examine`.
        threads: likewise.
        progress: likewise.

    Returns:
        The insight, with its findings.

    Raises:
        ObjectNotFoundError: a name is in neither model.
        FormatError: the manifest of a file is damaged.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read, or the page cannot be written.
    """
    result = model_report(source, other, names, sample=sample, threads=threads, progress=progress)
    result.save(output)
    return result.insight
