"""The work and the report of `convert`, for new files and in place."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli import jobs
from ztensor.cli.changing import quiet_library, require_free
from ztensor.cli.options import changing, converting
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.cli.verb import STDIN, error_as_json, in_order, open_file
from ztensor.errors import SourceError, UsageError, ZTensorError, describe
from ztensor.ext import remove

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence


_FILE = "(the file)"
Row = tuple[str, str]
# Options of `convert` that have no meaning with `--in-place`.
_OF_NEW_FILES = (
    "to", "dtype", "dequantize", "quantize", "pickled", "include", "exclude", "max_shard_size",
    "delete_input", "jobs", "scheduler", "recipe", "reverse",
)  # fmt: skip


def convert_file(
    terminal: Terminal, file: str, output: str, options: Namespace, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert a file, print the report, and delete the input if asked to.

    Args:
        terminal: prints the report.
        file: the input.
        output: the new file.
        options: the verb's options.
        keywords: arguments of `ztensor.convert` that `converting` does not return.

    Returns:
        The report as JSON.

    Raises:
        ZTensorError: the conversion failed; neither file is changed.
    """
    quiet_library()
    if options.delete_input:
        _require_deletable(file, options)
    require_free(output, force=options.force)
    if options.max_shard_size is not None:
        for path in shards_of(output):
            require_free(path, force=options.force)
    keywords = {**keywords, **converting(options), "threads": options.threads}
    rows = []
    with open_file(file) as reader, terminal.progress(output) as progress:
        if options.recipe is not None:
            recipe = ztensor.converting.Recipe.of(options.recipe, reverse=options.reverse)
            keywords["recipe"] = recipe
            rows = recipe.plan(reader) if options.dry_run else []
        report = ztensor.convert(reader, output, progress=progress, **keywords)
    if rows:
        _show_rows(terminal, rows)
    facts = _end(terminal, file, report, options)
    return {**facts, "recipe": list(map(dataclasses.asdict, rows))} if rows else facts


def _show_rows(terminal: Terminal, rows: Sequence[ztensor.converting.RecipeRow]) -> None:
    lines = []
    for row in rows:
        more = f" +{len(row.sources) - 1:,}" if len(row.sources) > 1 else ""
        old, new = (f"[{','.join(map(str, shape))}]" for shape in (row.source_shapes[0], row.shape))
        made = ("(dropped)", "", "") if row.name is None else (row.name, new, row.dtype)
        lines.append((f"{row.sources[0]}{more}", old, *made))
    columns = (Column("from"), Column("shape"), Column("to"), Column("shape"), Column("type"))
    terminal.table(columns, lines)


def convert_several(
    terminal: Terminal,
    files: Sequence[str],
    folder: str,
    options: Namespace,
    keywords: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Convert files into a folder, and print a report for each.

    Returns:
        The reports as JSON, in the order of the files.

    Raises:
        ZTensorError: the work cannot be started.
    """
    quiet_library()
    if options.delete_input:
        for file in files:
            _require_deletable(file, options)
    keywords = {
        **keywords,
        **converting(options),
        "to": keywords["to"] or "zt",
        "overwrite": options.force,
    }

    def reported(
        file: str, report: ztensor.converting.ConversionReport | ZTensorError
    ) -> dict[str, Any]:
        if isinstance(report, ZTensorError):
            terminal.error(report)
            return {"file": file, "error": error_as_json(report)}
        return _end(terminal, file, report, options)

    with jobs.executing(options, files) as workers, terminal.progress("files") as progress:
        reports = ztensor.fleet.convert_files(
            files, folder, progress=progress, **workers, **keywords
        )
        return in_order(files, ((file, reported(file, report)) for file, report in reports))


def rewrite(terminal: Terminal, options: Namespace, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a zTensor file in its place, print the report, and return it as JSON.

    Raises:
        UsageError: an option is for new files only.
        ZTensorError: the conversion failed; the file is not changed.
    """
    quiet_library()
    if len(options.files) != 1 or options.named_output is not None:
        raise UsageError("--in-place takes one FILE, and no OUT")
    given = [word for word in _OF_NEW_FILES if getattr(options, word) not in (None, False, [])]
    if given:
        words = ", ".join(f"--{word.replace('_', '-')}" for word in given)
        raise UsageError(f"--in-place keeps the format and all objects: leave out {words}")
    (file,) = options.files
    keywords = {
        **keywords,
        "version": options.version,
        "alignment": options.alignment,
        "canonical": options.canonical,
        "threads": options.threads,
        **changing(options),
        "durable": False if options.no_durable else "auto",
    }
    with terminal.progress(file) as progress:
        report = ztensor.migrate(file, progress=progress, **keywords)
    return report_conversion(terminal, file, report, options)


def _end(
    terminal: Terminal, file: str, report: ztensor.converting.ConversionReport, options: Namespace
) -> dict[str, Any]:
    is_deleted = options.delete_input and not options.dry_run
    deleted = delete(report.inputs) if is_deleted else []
    return report_conversion(terminal, file, report, options, deleted)


def _require_deletable(file: str, options: Namespace) -> None:
    """Raise if the new file would not have all contents of a file that is to be deleted."""
    if options.include or options.exclude:
        raise UsageError("--delete-input cannot be combined with --include or --exclude")
    if options.dequantize or options.quantize or options.dtype or options.recipe is not None:
        raise UsageError(
            "--delete-input cannot be combined with --dtype, --quantize, --dequantize or --recipe"
        )
    if file == STDIN:
        raise UsageError("--delete-input needs a file, not standard input")


def report_conversion(
    terminal: Terminal,
    file: str,
    report: ztensor.converting.ConversionReport,
    options: Namespace,
    deleted: Sequence[str] = (),
) -> dict[str, Any]:
    """Print the report of a conversion or dry run, and return it as JSON."""
    facts = {
        "file": file,
        "output": report.path,
        "files": list(report.files),
        "dry_run": options.dry_run,
        "format": report.format,
        "version": report.version or None,
        "object_count": report.objects,
        "nbytes": {"before": report.source_nbytes, "after": report.nbytes},
        "lossless": report.is_lossless,
        "lost": [
            {"object": loss.object_name, "sentence": loss.sentence, "kind": loss.kind}
            for loss in report.lost
        ],
        "unrepresented": [dataclasses.asdict(loss) for loss in report.unrepresented],
        "checked": report.is_checked,
        "unchecked": list(report.unchecked),
        "changed": [
            {
                "object": change.object_name,
                "from": change.was,
                "to": change.now,
                "largest_error": change.largest_error,
            }
            for change in report.changed
        ],
        "deleted": list(deleted),
    }
    _show(terminal, facts, lists_losses=options.losses)
    return facts


def loss_rows(
    losses: Sequence[tuple[str, str, str]], *, all_of_them: bool
) -> list[tuple[str, str]]:
    """Return the rows of the table of losses: one for each kind, or one for each loss.

    Args:
        losses: the object or file, the sentence and the kind of each.
        all_of_them: whether each loss has a row.
    """
    kinds: dict[object, list[tuple[str, str]]] = {}
    for number, (of, sentence, kind) in enumerate(losses):
        kinds.setdefault(number if all_of_them else kind, []).append((of, sentence))
    rows = []
    for alike in kinds.values():
        names = list(dict.fromkeys(of for of, _ in alike))
        sentence = alike[0][1]
        if len({one for _, one in alike}) > 1:
            sentence += f"; and {len(alike) - 1:,} more of the kind; --losses lists all"
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        rows.append((names[0] + more, sentence))
    return rows


def _show(terminal: Terminal, facts: Mapping[str, Any], *, lists_losses: bool) -> None:
    losses, changed, path = facts["lost"], facts["changed"], facts["output"]
    if losses:
        triples = [(loss["object"] or _FILE, loss["sentence"], loss["kind"]) for loss in losses]
        rows = loss_rows(triples, all_of_them=lists_losses)
        terminal.table((Column("lost of"), Column("what")), rows)
    kind = " ".join(filter(None, (facts["format"], facts["version"])))
    sizes = " -> ".join(map(size_text, facts["nbytes"].values()))
    if len(facts["files"]) > 1:
        kind += f" in {count_text(len(facts['files']) - 1, 'shard')}"
    lost = "values changed as asked, nothing else is lost" if changed else "nothing is lost"
    if losses:
        are = "is" if len(losses) == 1 else "are"
        lost = f"{count_text(len(losses), 'thing')} {are} lost"
    if facts["checked"]:
        lost += ", read back and compared"
    done = "not written; it would be" if facts["dry_run"] else "written,"
    objects = count_text(facts["object_count"], "object")
    terminal.line(f"{path}: {done} {kind}, of {objects}, {sizes}; {lost}")
    if changed:
        terminal.line(_changed_text(changed))
    for deleted in facts["deleted"]:
        terminal.line(f"{deleted}: deleted")


def _changed_text(changed: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of changed objects and the largest error as a sentence."""
    kinds = ", ".join(dict.fromkeys(change["from"] for change in changed))
    text = f"{count_text(len(changed), 'object')} made {changed[0]['to']}, from {kinds}"
    worst = max(changed, key=lambda one: one["largest_error"])
    if not worst["largest_error"]:
        return f"{text}; no value differs"
    return f"{text}; largest error {worst['largest_error']:.3g}, in {describe(worst['object'])}"


def shards_of(path: str) -> list[str]:
    """Return the paths of the index and of existing shards for a file's name."""
    folder, name = os.path.split(path)
    stem, extension = os.path.splitext(name)
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        return []  # writing there raises the error
    matches = filter(None, map(ext.ShardSet.match, sorted(names)))
    shards = [one[0] for one in matches if (one["stem"], one["extension"]) == (stem, extension)]
    return [f"{path}.index.json", *(os.path.join(folder, shard) for shard in shards)]


def delete(paths: Sequence[str]) -> list[str]:
    """Delete files, an index before its shards, and return their paths.

    Raises:
        SourceError: a file could not be deleted.
    """
    for path in paths:
        try:
            remove(path)
        except OSError as error:
            raise SourceError.from_os(
                error, "the new file is in place, but the old one cannot be deleted", path
            ) from error
    return list(paths)
