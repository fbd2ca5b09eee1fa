"""`ztensor convert` of a model's folder, and its report on each file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor.cli.options import new_file
from ztensor.cli.rewriting import loss_rows
from ztensor.cli.spelling import count_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import UsageError, describe
from ztensor.ext import FORMATS

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence


# Options of `convert` that have no meaning for folders.
_OF_FILES = (
    "dtype", "chunk_rows", "dequantize", "quantize", "include", "exclude", "max_shard_size",
    "delete_input", "recipe", "reverse",
    "canonical", "alignment", "version", "checksum",
)  # fmt: skip
_WORDS = {"convert": "converted", "index": "rewritten", "copy": "copied", "leave": "left out"}


def is_folder_asked(files: Sequence[str], output: str) -> bool:
    """Return whether to convert a folder to a folder, not to one file of its weights."""
    if len(files) != 1 or not os.path.isdir(files[0]):
        return False
    from ztensor.formats.dcp.folders import is_checkpoint

    has_suffix = FORMATS.by_suffix(output) is not None and not os.path.isdir(output)
    return not has_suffix and not is_checkpoint(files[0])


def convert_whole(
    terminal: Terminal, folder: str, output: str, options: Namespace, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert a folder, print a line for each file, and return the report as JSON.

    Args:
        terminal: prints the report.
        folder: the folder.
        output: the new folder.
        options: the verb's options.
        keywords: the options of `ztensor.convert` for one file.

    Raises:
        UsageError: an option is given that is for files only.
        ZTensorError: the conversion failed; neither folder is changed.
    """
    given = [word for word in _OF_FILES if getattr(options, word) not in (None, False, [])]
    if given:
        raise UsageError(
            "this option is for files; IN is a folder",
            file=folder,
            found=", ".join(f"--{word.replace('_', '-')}" for word in given),
        )
    with terminal.progress(output) as progress:
        report = ztensor.convert_folder(
            folder,
            output.rstrip("/" + os.sep) or output,
            to=options.to or "zt",
            compression=keywords["compression"],
            pickled=options.pickled,
            overwrite=options.force,
            strict=options.strict,
            threads=options.threads,
            progress=progress,
            **new_file(options),
        )
    facts = {
        "folder": folder,
        "output": report.path,
        "dry_run": report.dry_run,
        "format": report.format,
        "object_count": report.objects,
        "nbytes": {"before": report.source_nbytes, "after": report.nbytes},
        "steps": [
            {
                "action": step.action,
                "file": step.source,
                "new_file": step.target or None,
                "sentence": step.sentence or None,
            }
            for step in report.steps
        ],
        "lost": [
            {
                "file": file,
                "object": loss.object_name,
                "sentence": loss.sentence,
                "kind": loss.kind,
            }
            for file, loss in report.lost
        ],
    }
    _show(terminal, facts, lists_losses=options.losses)
    return facts


def _show(terminal: Terminal, facts: Mapping[str, Any], *, lists_losses: bool) -> None:
    rows = []
    for step in facts["steps"]:
        target, sentence = step["new_file"], step["sentence"]
        fact = f"{target} ({sentence})" if target and sentence else target or sentence or ""
        rows.append((_WORDS[step["action"]], step["file"], fact))
    terminal.table((Column("what"), Column("file"), Column("new file")), rows)
    path, kind, losses = facts["output"], facts["format"], facts["lost"]
    if losses:
        lost_of = []
        for loss in losses:
            of = "" if loss["object"] is None else f"{describe(loss['object'])}: "
            lost_of.append((loss["file"], of + loss["sentence"], loss["kind"]))
        listed = loss_rows(lost_of, all_of_them=lists_losses)
        terminal.table((Column("lost of"), Column("what")), listed)
    if facts["dry_run"]:
        terminal.line(f"{path}: not written; it would have the weights as {kind}")
        return
    sizes = " -> ".join(map(size_text, facts["nbytes"].values()))
    lost = f"{count_text(len(losses), 'thing')} lost" if losses else "nothing is lost"
    objects = count_text(facts["object_count"], "object")
    terminal.line(
        f"{path}: written, weights as {kind}, of {objects}, {sizes}; {lost}, read back and compared"
    )
