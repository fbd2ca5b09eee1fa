"""The commit, the dry run and the report of verbs that change files.

A dry run takes every step except writing, so its report and its errors are those of the real run.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import ztensor
from ztensor import ext
from ztensor.cli import options as shared
from ztensor.cli.spelling import as_json, count_text, json_text, object_facts, shape_text, size_text
from ztensor.cli.terminal import Column, Terminal
from ztensor.errors import ArgumentValueError, SourceError, UsageError, describe

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Mapping


_VALUE_CHARACTERS = 100  # of an attribute on a terminal
_MOST_LINES = 8  # lines on content that copies leave out

# From this amount and share of dead bytes on, a hint names `ztensor compact`.
_DEAD_BYTES = 64 << 20
_DEAD_SHARE = 0.25


class Changes:
    """Record the changes made through an editor, for the report.

    Args:
        editor: the file.
    """

    def __init__(self, editor: ztensor.edit.Editor | ztensor.edit.FormatEditor) -> None:
        self.editor = editor
        self.lost: list[tuple[str | None, str]] = []
        self.made: list[dict[str, Any]] = []
        self.old_count = len(editor.keys())
        self.facts: dict[str, Any] = {}  # of one verb, for its JSON

    def add(self, change: str, **facts: Any) -> None:
        """Record a change: `add`, `replace`, `remove`, `rename`, `set` or `unset`."""
        self.made.append({"change": change, **as_json(facts)})

    def copy(
        self,
        name: str,
        reader: ztensor.Reader,
        source: str,
        *,
        compress: bool,
        progress: Callable[[int], None],
        is_replaced: bool = False,
    ) -> None:
        """Copy an object of another file.

        Args:
            name: its name here.
            reader: the other file, open until the changes are committed.
            source: its name there.
            compress: whether it is compressed.
            progress: called with the bytes of each piece that was written.
            is_replaced: whether it replaces the object of that name.

        Raises:
            ZTensorError: it cannot be copied.
        """
        editor = self.editor
        if not isinstance(editor, ztensor.edit.FormatEditor):
            if is_replaced:
                editor.remove(name)
            editor.copy(name, reader, source, compress=compress or None, progress=progress)
            return
        if compress:
            raise UsageError("--compress is for .zt files", found=editor.format)

        def lose(about: str | None, sentence: str) -> None:
            self.lost.append((about, sentence))

        editor.copy(name, reader, source, is_replaced=is_replaced, lose=lose)

    def added(self, name: str) -> None:
        """Record an object that was written."""
        self.add("add", **_object_facts(self.editor.metadata(name)))

    def removed(self, metadata: ztensor.TensorMetadata) -> None:
        """Record an object that was removed."""
        self.add("remove", **_object_facts(metadata))

    def replaced(self, old: ztensor.TensorMetadata) -> None:
        """Record an object that was written under the name of an old one."""
        new = self.editor.metadata(old.name)
        self.add("replace", name=old.name, before=_object_facts(old), after=_object_facts(new))


def _object_facts(metadata: ztensor.TensorMetadata) -> dict[str, Any]:
    return {**object_facts(metadata), "stored_nbytes": metadata.stored_nbytes}


def _object_text(facts: Mapping[str, Any]) -> str:
    return f"{shape_text(facts['shape'])} {facts['elements']}, {size_text(facts['stored_nbytes'])}"


def _plan(change: Mapping[str, Any], limit: int) -> tuple[str, str, str]:
    """Return the cells of a planned change: the action, the object or attribute, and details.

    Args:
        change: one entry of the JSON list.
        limit: most characters of a value.
    """
    verb = change["change"]
    if verb in ("set", "unset"):
        values = [change[key] for key in ("before", "after") if change.get(key) is not None]
        subject = change["key"]
        if change["object"] is not None:
            subject = f"{change['object']}: {subject}"
        return verb, subject, " -> ".join(json_text(value, limit) for value in values)
    if verb == "rename":
        detail = f"-> {change['to']}"
    elif verb == "replace":
        detail = f"{_object_text(change['before'])} -> {_object_text(change['after'])}"
    else:
        detail = _object_text(change)
    return verb, change["name"], detail


@contextlib.contextmanager
def changing(terminal: Terminal, options: Namespace) -> Iterator[Changes]:
    """Open a file for changes; at the end commit them together and print the report.

    Raises:
        ZTensorError: a change is impossible; the file is then as it was.
    """
    quiet_library()
    file, dry_run = options.file, options.dry_run
    require_one_file(file)
    keywords = {**shared.changing(options), "atomic": options.atomic}
    checksum = getattr(options, "checksum", None)
    with terminal.progress(f"copy {file}") as progress:
        editor = ztensor.edit.open_editor(
            file, checksum=checksum or True, progress=progress, **keywords
        )
    with editor:
        if checksum is not None and isinstance(editor, ztensor.edit.FormatEditor):
            raise UsageError("--checksum is for .zt files", found=editor.format)
        changes = Changes(editor)
        yield changes
        if isinstance(editor, ztensor.edit.FormatEditor):
            with terminal.progress(f"write {file}") as progress:
                nbytes = editor.finish(progress)
        else:
            nbytes = editor.finish()
    if editor.rewritten_from is not None:
        would = "would be" if dry_run else "was"
        older = f"its version {editor.rewritten_from} cannot be changed in place"
        terminal.note(f"{file}: {older}; it {would} rewritten as 1.2.0")
    for name, sentence in changes.lost:
        terminal.note(f"{file}: {describe(name)}: {sentence}")
    _print_changes(terminal, file, changes, nbytes, dry_run=dry_run)
    if not dry_run and isinstance(editor, ztensor.edit.Editor):
        _hint_at_dead_bytes(terminal, file)


def require_one_file(path: str) -> None:
    """Raise unless a path is a single file.

    Raises:
        UsageError: the path means several files.
    """
    if os.path.isdir(path):
        raise ext.FORMATS.unchangeable(path, "a folder")
    if ext.ShardSet.is_meant(path):
        raise ext.FORMATS.unchangeable(path, "a set of files")


def is_divided_folder(path: str) -> bool:
    """Return whether a path or URL is a distributed checkpoint, complete or not."""
    from ztensor.distributed.cleaning import has_parts

    return (os.path.isdir(path) or ext.is_remote(path)) and has_parts(path)


def quiet_library() -> None:
    """Silence the library's warnings: verbs print the same facts, escaped."""
    logging.getLogger("ztensor").addHandler(logging.NullHandler())


def _print_changes(
    terminal: Terminal, file: str, changes: Changes, nbytes: int, *, dry_run: bool
) -> None:
    editor = changes.editor
    count = len(editor.keys())
    if dry_run:
        limit = _VALUE_CHARACTERS if terminal.interactive else sys.maxsize
        if changes.made:
            columns = Column("would"), Column("name"), Column("detail")
            terminal.table(columns, [_plan(change, limit) for change in changes.made])
        before = f"{count_text(changes.old_count, 'object')}, {size_text(editor.old_nbytes)}"
        after = f"{count_text(count, 'object')}, {size_text(nbytes)}"
        terminal.line(f"{file}: unchanged, {before}; it would have {after}")
        if isinstance(editor, ztensor.edit.FormatEditor):
            new, copied = size_text(editor.written_nbytes), size_text(editor.copied_nbytes)
            terminal.line(f"a new file would replace it: {new} new, {copied} copied")
    else:
        counts = collections.Counter(change["change"] for change in changes.made)
        done = [_done_text(verb, count) for verb, count in counts.items()]
        total = f"{count_text(count, 'object')}, {size_text(nbytes)}"
        terminal.line(f"{file}: {', '.join(done or ['nothing to change'])}; {total}")
    terminal.result(
        {
            "file": file,
            "dry_run": dry_run,
            "changes": changes.made,
            "object_count": {"before": changes.old_count, "after": count},
            "nbytes": {"before": editor.old_nbytes, "after": nbytes},
            "rewritten_from": editor.rewritten_from,
            "lost": [{"object": name, "sentence": sentence} for name, sentence in changes.lost],
            **changes.facts,
        }
    )


_DONE = {
    "add": ("object", "added"),
    "replace": ("object", "replaced"),
    "remove": ("object", "removed"),
    "rename": ("object", "renamed"),
    "set": ("attribute", "set"),
    "unset": ("attribute", "removed"),
}


def _done_text(verb: str, count: int) -> str:
    noun, participle = _DONE[verb]
    return f"{count_text(count, noun)} {participle}"


def _hint_at_dead_bytes(terminal: Terminal, file: str) -> None:
    """Suggest `compact` if much of the file is dead bytes."""
    if terminal.quiet or size_of(file) < _DEAD_BYTES:
        return
    from ztensor.cli.info import room_of

    with ztensor.Reader(file) as reader:
        _, dead, _ = room_of(reader.objects.parts()[0])
        if dead >= _DEAD_BYTES and dead >= _DEAD_SHARE * reader.nbytes:
            terminal.note(f"{size_text(dead)} of {file} are dead; `ztensor compact` frees them")


def pair_of(text: str, form: str) -> tuple[str, str]:
    """Split a text at its first "=".

    Raises:
        ArgumentValueError: no "=" is in the text, or nothing precedes it.
    """
    before, equals, behind = text.partition("=")
    if not equals or not before:
        raise ArgumentValueError("not a pair", expected=form, found=describe(text))
    return before, behind


def left_behind(terminal: Terminal, file: str, reader: ztensor.Reader) -> list[dict[str, Any]]:
    """Print the content of a file that no copy of its objects has, and return it for JSON."""
    # Objects without data are refused when they are chosen.
    losses = [loss for loss in reader.unrepresented if not loss.is_unread]
    for one in losses[:_MOST_LINES]:
        terminal.note(f"{file}: left out: {one}")
    if len(losses) > _MOST_LINES:
        more = f"{len(losses) - _MOST_LINES:,} more; `ztensor info` lists all"
        terminal.note(f"{file}: left out: {more}")
    return [{"file": file, **dataclasses.asdict(loss)} for loss in losses]


def size_of(path: str) -> int:
    """Return the length of a file in bytes.

    Raises:
        SourceError: the file does not exist any more.
    """
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise SourceError.from_os(error, "cannot open for reading", path) from error


def require_free(path: str, *, force: bool) -> None:
    """Raise if a file exists at a path, unless `force` allows to replace it.

    Raises:
        UsageError: the path exists.
    """
    ext.Place.of(path).require_free(overwrite=force, allowed_by="--force")


def require_suffix(path: str, *suffixes: str) -> None:
    """Raise unless a path has one of the suffixes of the format that is written.

    Raises:
        ArgumentValueError: the suffix belongs to another format.
    """
    if not path.lower().endswith(suffixes):
        raise ArgumentValueError(
            "the new file needs another suffix",
            expected=" or ".join(suffixes),
            found=describe(path),
        )


def require_target(path: str, *, force: bool) -> None:
    """Raise if a zTensor file would replace a file, or have another format's suffix.

    Raises:
        UsageError: the path exists, or its suffix belongs to another format.
    """
    require_free(path, force=force)
    kind = ext.FORMATS.named_as(path)
    if kind not in (None, "zt"):
        error = UsageError("the suffix of a zTensor file is from another format", file=path)
        error.hint = "call it .zt"
        if ext.FORMATS[kind].is_written:
            error.hint += f"; `ztensor convert` makes {kind} of it"
        raise error


def require_apart(output: str, reader: ztensor.Reader) -> None:
    """Raise if an output is one of the files that are read, by any name or link.

    Raises:
        UsageError: the output is an input.
    """
    for file in (reader.name, *reader.objects.paths):
        with contextlib.suppress(OSError, ValueError):  # not a path that exists
            if os.path.samefile(file, output):
                raise UsageError(
                    "the output is also an input; write to another file", file=output, found=file
                )
