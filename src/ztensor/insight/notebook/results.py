"""Sheets of results: checks, statistics, differences, findings, conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import counted, describe
from ztensor.insight.analysis.comparing import DiffReport
from ztensor.insight.analysis.document import Insight
from ztensor.insight.analysis.pairs import TensorDiff
from ztensor.insight.analysis.spreads import Histogram
from ztensor.insight.analysis.statistics import StatsReport, TensorStats
from ztensor.insight.notebook.sheet import FileText, Number, Sheet, Table, number
from ztensor.insight.text import shape_text, size_text
from ztensor.typing import VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ztensor import converting

_BLOCKS = "▁▂▃▄▅▆▇█"
_STATS = ("name", "type", "shape", "min", "max", "mean", "std", "zeros", "NaN", "inf")


def of_verify(report: VerifyReport) -> Sheet:
    """Return the sheet of a check, problems first."""
    facts = [
        ("outcome", report.outcome),
        ("objects", f"{report.objects:,}"),
        ("digests that match", f"{report.checked:,}"),
        ("read", size_text(report.nbytes)),
    ]
    tables = []
    for title, problems in (("problem", report.problems), ("unsupported rule", report.unsupported)):
        rows = (
            (
                FileText(problem.object_name or "the file"),
                FileText(problem.component or ""),
                str(problem.reason),
                FileText(problem.message),
            )
            for problem in problems
        )
        columns = ("object", "component", "reason", "problem")
        if problems:
            tables.append(Table(counted(len(problems), title), columns, rows, len(problems)))
    if report.unchecked:
        rows_of = ((FileText(name), FileText(why)) for name, why in report.unchecked.items())
        count = len(report.unchecked)
        tables.append(Table(f"{count:,} unchecked", ("object", "why"), rows_of, count))
    return Sheet("ztensor.io.VerifyReport", "", facts, tables)


def of_stats(report: StatsReport) -> Sheet:
    """Return the sheet of statistics."""
    rows = (_stats(stats) for stats in report.values())
    return Sheet(
        "ztensor.insight.StatsReport",
        "",
        [("objects", f"{len(report):,}")],
        [Table("statistics", _STATS, rows, len(report))],
        "report[name]",
    )


def _stats(stats: TensorStats) -> Sequence[str]:
    head = (FileText(stats.name), FileText(stats.dtype or "unknown"), shape_text(stats.shape))
    if stats.note is not None:
        return (*head, FileText(stats.note), *(Number("") for _ in _STATS[4:]))
    numbers = (stats.min, stats.max, stats.mean, stats.std, stats.zeros, stats.nans, stats.infs)
    return (*head, *map(number, numbers))


def of_tensor_stats(stats: TensorStats) -> Sheet:
    """Return the sheet of the statistics of one object, with its histogram as text."""
    facts: list[tuple[str, str]] = [
        ("type", FileText(stats.dtype or "unknown")),
        ("shape", shape_text(stats.shape)),
        ("of", stats.of),
    ]
    if stats.note is not None:
        facts.append(("note", FileText(stats.note)))
    names = "count zeros nans infs min max mean std rms crest kurtosis"
    for name in names.split():
        value = getattr(stats, name)
        facts += [] if value is None else [(name, number(value))]
    if stats.histogram is not None:
        facts.append(("histogram", bars(stats.histogram)))
    rows = [(f"{share:.0%}", number(value)) for share, value in stats.quantiles.items()]
    tables = [Table("quantiles", ("share", "value"), rows, len(rows))] if rows else []
    return Sheet("ztensor.insight.TensorStats", stats.name, facts, tables)


def bars(histogram: Histogram) -> str:
    """Return a histogram as a line of block characters, one for one or two bins."""
    counts = list(histogram.counts)
    if len(counts) > 40:
        counts = [sum(counts[at : at + 2]) for at in range(0, len(counts), 2)]
    most = max(counts, default=0) or 1
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-one * steps // most)] for one in counts[:80])


def of_diff(report: DiffReport) -> Sheet:
    """Return the sheet of a comparison."""
    differing = report.differing
    facts = [
        ("objects", f"{len(report.tensors):,}"),
        ("different", f"{len(differing):,}"),
    ]
    within = sum(difference.is_within for difference in report.tensors)
    facts += [("within the tolerance", f"{within:,}")] if within else []
    columns = ("name", "differs in", "max |a - b|", "relative", "cosine", "changed", "note")
    tables = []
    if differing:
        rows = map(_difference, differing)
        tables.append(Table("different objects", columns, rows, len(differing)))
    for title, pairs in (("attributes", report.attributes), ("values", report.values)):
        if pairs:
            cells = (
                (FileText(str(key)), FileText(describe(a, 80)), FileText(describe(b, 80)))
                for key, (a, b) in pairs.items()
            )
            tables.append(Table(f"different {title}", ("key", "a", "b"), cells, len(pairs)))
    return Sheet("ztensor.insight.DiffReport", "", facts, tables, "report.differing")


def _difference(difference: TensorDiff) -> Sequence[str]:
    values = difference.values
    numbers = ("max_abs", "relative", "cosine", "changed")
    return (
        FileText(difference.name),
        ", ".join(difference.differences),
        *(number(None if values is None else getattr(values, name)) for name in numbers),
        FileText(difference.note or ""),
    )


def of_tensor_diff(difference: TensorDiff) -> Sheet:
    """Return the sheet of the differences of one object."""
    facts: list[tuple[str, str]] = [("differs in", ", ".join(difference.differences) or "nothing")]
    if difference.other_name != difference.name:
        facts.append(("name in b", FileText(difference.other_name)))
    for label, side in (("a", difference.before), ("b", difference.after)):
        if side is not None:
            text = f"{side.type or side.dtype or 'unknown'} {shape_text(side.shape)} {side.format}"
            facts.append((label, FileText(text)))
    facts += [("compared by", difference.compared)] if difference.compared else []
    facts += [("note", FileText(difference.note))] if difference.note else []
    if difference.values is not None:
        names = ("count", "changed", "beyond", "max_abs", "max_rel", "relative", "cosine", "snr_db")
        facts += [(name, number(getattr(difference.values, name))) for name in names]
    return Sheet("ztensor.insight.TensorDiff", difference.name, facts)


def of_insight(insight: Insight) -> Sheet:
    """Return the sheet of an examination: the models, and the findings, the worst first."""
    facts: list[tuple[str, str]] = []
    for model in insight.models:
        facts.append(("model", FileText(model.name)))
        count = f"{counted(len(model.objects), 'tensor')}, {counted(model.parameters, 'parameter')}"
        facts.append(("holds", f"{count}, {size_text(model.nbytes)}"))
    kinds: dict[str, int] = {}
    for pair in insight.pairs:
        kinds[pair.kind] = kinds.get(pair.kind, 0) + 1
    facts += [("compared", ", ".join(f"{n:,} {kind}" for kind, n in kinds.items()))] * bool(kinds)
    if insight.not_looked_at:
        facts.append(("not looked at", ", ".join(insight.not_looked_at)))
    findings = insight.findings
    title = counted(len(findings), "finding") if findings else "no findings"
    columns = ("level", "rule", "tensor", "finding")
    table = Table(title, columns, _findings(insight), len(findings))
    if not findings:
        facts.append(("findings", "none"))
    ways = "ztensor.view(model), insight.as_json()"
    return Sheet("ztensor.insight.Insight", "", facts, [table] if findings else [], ways)


def _findings(insight: Insight) -> Iterator[Sequence[str]]:
    for finding in insight.findings:
        which = " in b" if finding.model else ""
        yield (
            finding.level,
            f"{finding.rule}{which}",
            FileText(finding.tensor),
            FileText(finding.text),
        )


def of_conversion(report: converting.ConversionReport) -> Sheet:
    """Return the sheet of a conversion: the new file, and losses."""
    facts: list[tuple[str, str]] = [
        ("format", f"{report.format} {report.version}".rstrip()),
        ("objects", f"{report.objects:,}"),
        ("size", size_text(report.nbytes)),
        ("read back and compared", "yes" if report.is_checked else "no"),
        ("lost", counted(len(report.lost), "thing") if report.lost else "nothing"),
    ]
    facts += [("changed", counted(len(report.changed), "object"))] if report.changed else []
    rows = ((FileText(str(loss)),) for loss in report.lost)
    tables = [Table("losses", ("loss",), rows, len(report.lost))] if report.lost else []
    return Sheet("ztensor.converting.ConversionReport", report.path, facts, tables)
