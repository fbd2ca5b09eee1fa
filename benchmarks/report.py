"""A run as tables: for the terminal, and as Markdown for the page in docs/."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import chart
from benchmarks.foreign import PAIRS
from benchmarks.goals import FOREIGN_GOALS, GOALS, Goal, Verdict, judge
from benchmarks.operations import OPERATIONS
from benchmarks.ratios import three_digits
from benchmarks.record import Run

OURS = "ours"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
FOREIGN_BEGIN, FOREIGN_END = "<!-- foreign results -->", "<!-- end of foreign results -->"
MOST_COLUMNS = 6  # of a table on the page
Table = tuple[list[str], list[list[str]]]  # headings and rows


# --- Cells ------------------------------------------------------------------------------------


def milliseconds(seconds: float) -> str:
    """Return a time in ms with three digits that say something."""
    return three_digits(seconds * 1e3)


def _places(run: Run) -> Iterator[tuple[str, str]]:
    """Yield every workload and operation that was measured, in the order of the tables."""
    measured = {(sample.workload, sample.operation) for sample in run.samples}
    for place in itertools.product(run.workloads, OPERATIONS):
        if place in measured:
            yield place


def _present(run: Run) -> list[str]:
    return [name for name in run.titles if name not in run.absent]


# --- Tables -----------------------------------------------------------------------------------


def verdicts(run: Run) -> list[Verdict]:
    """Return a verdict on each goal for a workload that was part of the run."""
    goals: Iterable[Goal] = GOALS
    if run.is_foreign:  # without those of peers that were not asked for
        goals = [goal for goal in FOREIGN_GOALS if goal.row in run.titles]
    every = judge(run.samples, run.nbytes(), goals)
    return [verdict for verdict in every if verdict.workload in run.workloads]


def goal_table(run: Run) -> Table:
    """Return every goal with what was measured and whether that is enough."""
    return table_of(verdicts(run), run.titles)


def table_of(found: Iterable[Verdict], titles: Mapping[str, str]) -> Table:
    """Return verdicts as a table; `titles` says how peers are shown."""
    headings = [
        "goal",
        "on",
        "against",
        "at most",
        "measured",
        "before",
        "no digests",
        "",
        "spread",
    ]
    rows = [
        [
            verdict.title,
            verdict.workload,
            titles.get(verdict.against, verdict.against),
            "-" if verdict.goal is None else f"{verdict.goal:g}",
            "-" if verdict.measured is None else three_digits(verdict.measured),
            "" if verdict.before is None else three_digits(verdict.before),
            "" if verdict.without is None else three_digits(verdict.without),
            verdict.outcome,
            verdict.detail,
        ]
        for verdict in found
    ]
    return headings, rows


def counted(found: Sequence[Verdict]) -> str:
    """Return how many goals were met and missed, and how many were not measured."""
    outcomes = [verdict.outcome for verdict in found if verdict.goal is not None]
    text = f"{outcomes.count('met')} met, {outcomes.count('missed')} missed"
    absent = outcomes.count("-")
    return f"{text}, {absent} not measured" if absent else text


def _by_peer(run: Run, cell: Callable[[str, str, str], str]) -> Table:
    peers = _present(run)
    headings = ["workload", "operation", *(run.titles[name] for name in peers)]
    rows = [
        [workload, OPERATIONS[operation].title, *(cell(workload, operation, one) for one in peers)]
        for workload, operation in _places(run)
    ]
    return headings, rows


def wall_table(run: Run) -> Table:
    """Return the least and the median wall time of everything, in ms."""

    def cell(workload: str, operation: str, peer: str) -> str:
        found = run.samples.figures(workload, operation, peer)
        if found is None:
            return "-"
        return f"{milliseconds(found.least)} / {milliseconds(found.median)}"

    return _by_peer(run, cell)


def cpu_table(run: Run) -> Table:
    """Return the median CPU time of everything, in ms."""

    def cell(workload: str, operation: str, peer: str) -> str:
        found = run.samples.figures(workload, operation, peer)
        return "-" if found is None else milliseconds(found.cpu)

    return _by_peer(run, cell)


def memory_table(run: Run) -> Table:
    """Return the median growth of resident memory at its highest, in MB."""

    def cell(workload: str, operation: str, peer: str) -> str:
        found = run.samples.figures(workload, operation, peer)
        return "-" if found is None else three_digits(found.peak / 1e6)

    return _by_peer(run, cell)


def ratio_table(run: Run) -> Table:
    """Return our wall time over each peer's."""
    peers = [name for name in _present(run) if name != OURS]

    def cell(workload: str, operation: str, peer: str) -> str:
        found = run.samples.ratio(workload, operation, OURS, peer)
        return "-" if found is None else three_digits(found.median)

    headings = ["workload", "operation", *(run.titles[name] for name in peers)]
    rows = [
        [workload, OPERATIONS[operation].title, *(cell(workload, operation, one) for one in peers)]
        for workload, operation in _places(run)
    ]
    return headings, [row for row in rows if set(row[2:]) != {"-"}]


def foreign_table(run: Run) -> Table:
    """Return what a library and we took for the library's own files: ms, least / median, and MB."""
    rows = []
    for pair in PAIRS:
        for ours in pair.ours:
            for workload, operation in _places(run):
                found = [
                    run.samples.figures(workload, operation, peer) for peer in (pair.library, ours)
                ]
                if workload not in pair.workloads or None in found:
                    continue
                times = [
                    f"{milliseconds(one.least)} / {milliseconds(one.median)}"
                    for one in found
                    if one
                ]
                peaks = [three_digits(one.peak / 1e6) for one in found if one]
                title = pair.title(ours)
                rows.append([title, workload, OPERATIONS[operation].title, *times, *peaks])
    headings = ["format", "workload", "operation", "theirs", "ours", "theirs, MB", "ours, MB"]
    return headings, rows


def size_table(run: Run) -> Table:
    """Return the bytes of each peer's files as a multiple of the tensors' bytes."""
    peers = _present(run)
    rows = [
        [
            name,
            f"{facts['tensors']:,}",
            f"{facts['nbytes'] / 1e6:,.1f}",
            *(
                "-"
                if peer not in run.files.get(name, {})
                else f"{run.files[name][peer] / facts['nbytes']:.3f}"
                for peer in peers
            ),
        ]
        for name, facts in run.workloads.items()
    ]
    return ["workload", "tensors", "MB", *(run.titles[name] for name in peers)], rows


def reasons(run: Run) -> list[str]:
    """Return why there are gaps, each reason once."""
    lines = [f"{run.titles[name]}: not measured: {reason}" for name, reason in run.absent.items()]
    lines += [f"{name}: left out: {reason}" for name, reason in run.skipped.items()]
    for workload, operation, peer, reason, is_error in run.notes:
        what = OPERATIONS[operation].title if operation else "everything"
        if is_error:
            lines.append(f"{run.titles[peer]}: {what} of {workload} failed: {reason}")
        else:
            lines.append(f"{run.titles[peer]}: {what}: {reason}")
    return list(dict.fromkeys(lines))


# --- Terminal ---------------------------------------------------------------------------------


def plain(table: Table) -> str:
    """Return a table with aligned columns."""
    headings, rows = table
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [headings, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def describe(run: Run) -> str:
    """Return when, where and how it was measured, in one line."""
    machine = run.machine
    return (
        f"{run.mode} run of {run.date} on {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}, "
        f"NumPy {_numpy_version(run)}, "
        f"commit {machine['commit'] or 'unknown'}, seed {run.seed}, "
        f"load {machine['load_at_start']} to {machine.get('load_at_end', '?')}"
    )


def _numpy_version(run: Run) -> str:
    # All have the same; ours is not among those that read files of other libraries.
    return next((one["numpy"] for one in run.versions.values() if "numpy" in one), "?")


def terminal(run: Run, *, with_figures: bool) -> str:
    """Return what a run prints: the goals last, where they are seen."""
    parts = [describe(run)]
    parts += [f"warning: {warning}" for warning in run.warnings]
    if with_figures and run.is_foreign:
        parts.append(f"Least / median ms, memory\n\n{plain(foreign_table(run))}")
    elif with_figures:
        parts += [
            f"Wall time, least / median ms\n\n{plain(wall_table(run))}",
            f"CPU time, median ms\n\n{plain(cpu_table(run))}",
            f"Growth of resident memory, median MB\n\n{plain(memory_table(run))}",
            f"Size of the files, times the data\n\n{plain(size_table(run))}",
            f"Our wall time over theirs, median of same rounds\n\n{plain(ratio_table(run))}",
        ]
    gaps = reasons(run)
    if gaps:
        parts.append("Gaps\n\n" + "\n".join(f"  {line}" for line in gaps))
    parts.append(f"Goals: our wall time over theirs\n\n{plain(goal_table(run))}")
    parts.append(counted(verdicts(run)))
    return "\n\n".join(parts)


# --- The page ---------------------------------------------------------------------------------


def narrow(table: Table, fixed: int) -> list[Table]:
    """Return a wide table as tables of six columns at most, without rows that say nothing.

    Args:
        table: its first columns say what a row is of, the others are peers.
        fixed: how many columns are first, and in each of the tables; ours is the last of them.
    """
    headings, rows = table
    size = MOST_COLUMNS - fixed
    tables = []
    for start in range(fixed, len(headings), size):
        columns = [*range(fixed), *range(start, min(start + size, len(headings)))]
        kept = [[row[at] for at in columns] for row in rows]
        kept = [row for row in kept if set(row[fixed:]) != {"-"}]
        tables.append(([headings[at] for at in columns], kept))
    return tables


def by_peers(table: Table, fixed: int) -> str:
    """Return a wide table as Markdown."""
    return "\n\n".join(map(markdown, narrow(table, fixed)))


def goals_for_people(table: Table) -> Table:
    """Return the table of goals in six columns: the spread is in the file of the run."""
    headings, rows = table
    without, outcome = headings.index("no digests"), headings.index("")
    return [*headings[:5], ""], [
        [*row[:4], f"{row[4]} ({row[without]})" if row[without] else row[4], row[outcome]]
        for row in rows
    ]


def files_for_people(table: Table) -> Table:
    """Return the table of files of other libraries in six columns."""
    headings = ["format", "workload", "operation", "theirs", "ours", "MB, theirs / ours"]
    return headings, [[*row[:5], f"{row[5]} / {row[6]}"] for row in table[1]]


def markdown(table: Table) -> str:
    """Return a table as Markdown, numbers to the right."""
    headings, rows = table
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    marks = ["---:" if _is_numeric(column) else "---" for column in columns]
    lines = [[_escaped(heading) for heading in headings], marks]
    lines += [[_escaped(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _is_numeric(cells: Sequence[str]) -> bool:
    return all(cell[:1] in "0123456789-" for cell in cells)


def page_results(run: Run) -> str:
    """Return the part of the page that a run fills."""
    paragraphs = [
        f"A {describe(run)}.",
        *(f"Note: {warning}." for warning in run.warnings),
        "### Goals",
        "Our wall time over theirs, lower is better, except where the third column names a unit. "
        "Loads are judged with every digest checked, which the others do not do; the number in "
        "brackets is without. " + counted(verdicts(run)) + ".",
        markdown(goals_for_people(goal_table(run))),
        "### Our wall time over theirs",
        "Median over the rounds; below 1 we are faster.",
        by_peers(ratio_table(run), 2),
        "### Wall time",
        "Least / median, ms.",
        by_peers(wall_table(run), 3),
        "### CPU time",
        "All threads, median, ms.",
        by_peers(cpu_table(run), 3),
        "### Memory",
        "Growth of resident memory at its highest, median, MB. Pages of a mapped file count as "
        "soon as they are touched, although they are the page cache's.",
        by_peers(memory_table(run), 3),
        "### Size of the files",
        "As a multiple of the tensors' bytes.",
        by_peers(size_table(run), 4),
    ]
    gaps = reasons(run)
    if gaps:
        paragraphs += ["### Gaps", "\n".join(f"- {_escaped(line)}" for line in gaps)]
    return "\n\n".join(paragraphs)


def foreign_results(run: Run) -> str:
    """Return the part of the page that a run with files of other libraries fills."""
    paragraphs = [
        f"A {describe(run)}.",
        *(f"Note: {warning}." for warning in run.warnings),
        "Our wall time over theirs on the same file, which they wrote, median over the rounds; a "
        "unit in the third column is of our time alone. " + counted(verdicts(run)) + ".",
        markdown(goals_for_people(goal_table(run))),
        "Wall time, least / median, ms, and growth of resident memory at its highest, median.",
        markdown(files_for_people(foreign_table(run))),
    ]
    gaps = reasons(run)
    if gaps:
        paragraphs.append("\n".join(f"- {_escaped(line)}" for line in gaps))
    return "\n\n".join(paragraphs)


def write_docs(run: Run, folder: Path) -> None:
    """Write the results between their marks in the page, and the chart where they have one.

    A run with files of other libraries has marks of its own, and changes nothing else.

    Raises:
        ValueError: the page has no marks.
    """
    page, picture = folder / "benchmarks.md", folder / "benchmarks.svg"
    first, last = (FOREIGN_BEGIN, FOREIGN_END) if run.is_foreign else (BEGIN, END)
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} has no {first} or no {last}")
    if run.is_foreign:
        results = foreign_results(run)
    else:
        picture.write_text(chart.draw(run), encoding="utf-8")
        results = page_results(run)
    page.write_text(f"{before}{first}\n\n{results}\n\n{last}{after}", encoding="utf-8")
