"""`ztensor report`: the tensors and findings of a model as one page for the browser."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ztensor.cli.changing import require_apart, require_free, require_suffix
from ztensor.cli.choosing import chosen_or_all
from ztensor.cli.exits import ExitCode
from ztensor.cli.options import CHOICE, DRY_RUN, FORCE, MODEL, OTHER_MODEL, THREADS, Option
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import open_file
from ztensor.insight.page.report import model_report

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    import ztensor

OPTIONS = (
    MODEL,
    OTHER_MODEL,
    *CHOICE,
    Option(
        "--output",
        "-o",
        metavar="PAGE",
        help="Write an .html file; without it the findings are only printed.",
    ),
    Option(
        "--fail-on",
        metavar="CONDITIONS",
        help="Exit with 1 if a condition is met: rules, `error`, `warn`, comparisons.",
    ),
    Option(
        "--sample",
        metavar="SHARE",
        type=float,
        help="Read only this share, such as 0.05, of the rows of large tensors.",
    ),
    THREADS,
    FORCE,
    DRY_RUN,
)

_SHOWN = 50
_WHERE = {
    frozenset({0}): ", in the first",
    frozenset({1}): ", in the second",
    frozenset({0, 1}): ", in both",
}


def report(terminal: Terminal, options: Namespace) -> None:
    """Write one page that shows a model, or two beside each other.

    The page needs no network, no server and nothing installed. It has the findings, a grid of roles
    and layers, the names as a tree and as a table, a treemap, and of each tensor its numbers, a
    histogram and a map of its rows and columns; of two models what changed. Nothing in a model can
    run in it. Of 1,000 tensors it takes up to 3 MB, and 1.5 kB for each one beyond; what did not
    fit is listed in it.

    Everything is read once and checked against its digest; tensors of OTHER whose digests are equal
    are not read.

    With --sample only some rows of large tensors are read, the same each time, and no digest of
    these is checked. Rules that need all rows, such as NaN or dead rows, are listed as not checked;
    a NaN in the sample is found. It cannot be combined with OTHER or --fail-on.

    --fail-on takes conditions with commas between them. A rule: damaged, nan, inf, layer,
    saturated, lone-value, outlier-channel, dead-channel, all-zero, constant, zeros, same-content;
    of two models also moved, change, noisy. A finding that is excused, such as infinities in a
    mask, does not count. `error` or `warn`: findings of that level or worse. A comparison by <,
    <=, > or >=: nans, infs, zeros, min, max, mean, std, rms, crest, kurtosis, log2_rms; of two
    models also relative, cosine, snr_db, max_abs, changed.

    Output:
      The findings, the worst first: level, name, description, the rule in brackets,
      and for two models where it was found; 50 at most. Then the
      conditions of --fail-on that are met, and the size of the page.

    JSON:
      schema, producer
                      `ztensor-insight/1`, which the page on insight describes in
                      full, and the program
      sampled         false: every element was looked at; else share, of the rows
                      of large tensors
      models          one or two: name, format, version, nbytes, stored_nbytes,
                      object_count, parameters, attributes (pairs),
                      attributes_left_out; types, encodings, groups,
                      optimizer_state (name, tensors, elements, nbytes); tensors
                      (columns: name, count, nans, infs, rms, crest, kurtosis,
                      log2_rms; and shape, type, layout, encoding, digest, which
                      are places in shapes, types, layouts, encodings, digests);
                      layers (roles, shapes, indices, tensor, log2_rms); detail
                      (place to what `stats --json` has; histogram with low, high,
                      counts; row_norms and column_norms with median, max, argmax,
                      dead, outliers, strip; heat with scale, kind, bits, data)
      rules           title, threshold and meaning of each: damaged, nan and so on
      findings        rule, level, model, tensor (its place), value, threshold,
                      text
      not_looked_at   rules that could not be tried
      diff            of two models, columns: a, b, kind, differences, note,
                      relative, cosine, snr_db, max_abs, changed
      left_out        what, why, count
      output          the page, or null
      dry_run         whether nothing was written
      met             conditions that are met: condition, tensor, text

    Safety:
      It never changes a model file, and replaces no page without --force.

    Exit code:
      0 if everything could be read; 1 if a condition of --fail-on is met; 2 if
      one is unknown, a pattern matches nothing or the page exists.

    Examples:
      $ ztensor report model.zt -o model.html
        one file to look at, to keep or to send
      $ ztensor report model.zt changed.zt -o change.html
        what changed between two steps
      $ ztensor report model.zt --fail-on 'damaged,layer,crest>1e4'
        as a check; no condition is met here
    """
    output = options.output
    if output is not None:
        require_suffix(output, ".html", ".htm")
        require_free(output, force=options.force)
    with contextlib.ExitStack() as stack:
        files = [options.file, *([options.other] if options.other is not None else [])]
        readers = [stack.enter_context(open_file(file)) for file in files]
        if output is not None:
            for reader in readers:
                require_apart(output, reader)
        names = chosen_or_all(readers, options)
        progress = stack.enter_context(terminal.progress(os.path.basename(options.file)))
        result = model_report(
            readers[0],
            readers[1] if len(readers) > 1 else None,
            names,
            conditions=options.fail_on,
            sample=options.sample,
            threads=options.threads,
            progress=progress,
        )
    _show(terminal, result.insight, result.findings())
    if output is not None and options.dry_run:
        terminal.line(f"{output}: not written; it would take {size_text(len(result.page()))}")
    elif output is not None:
        result.save(output)
        terminal.line(f"{output}: {size_text(len(result.page()))} written")
    met = [
        {"condition": condition.condition, "tensor": condition.tensor, "text": condition.text}
        for condition in result.met
    ]
    if met:
        terminal.fail(ExitCode.FAILED)
        _show_met(terminal, met)
    if terminal.wants_json:
        facts = {"output": output, "dry_run": options.dry_run, "met": met}
        terminal.result(result.insight.as_json() | facts)


def _show(
    terminal: Terminal,
    insight: ztensor.insight.Insight,
    findings: Sequence[tuple[ztensor.insight.Finding, frozenset[int]]],
) -> None:
    for finding, where in findings[:_SHOWN]:
        rule = finding.rule + _WHERE.get(where, "")
        terminal.line(f"{finding.level:5} '{finding.tensor}': {finding.text} [{rule}]")
    beyond = len(findings) - _SHOWN
    if beyond > 0:
        terminal.line(f"and {beyond:,} more")
    counts = [
        f"{sum(finding.level == level for finding, _ in findings):,} {level}"
        for level in ("error", "warn", "info")
    ]
    if insight.sample is not None:
        unlooked = ", ".join(insight.not_looked_at)
        terminal.line(
            f"a sample of {insight.sample:.3g} of large tensors; not looked at: {unlooked}"
        )
    tensors = " and ".join(count_text(len(model.objects), "tensor") for model in insight.models)
    terminal.line(f"{tensors}: {', '.join(counts)}")


def _show_met(terminal: Terminal, met: Sequence[Mapping[str, str]]) -> None:
    # Of two models both may meet a condition.
    once = list(dict.fromkeys(f"met {m['condition']}: '{m['tensor']}': {m['text']}" for m in met))
    for text in once[:_SHOWN]:
        terminal.problem(text)
    if len(once) > _SHOWN:
        terminal.problem(f"and {len(once) - _SHOWN:,} more")
