"""Give every file of a corpus to a reader, and count the verdicts by section."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from ztensor.conformance.answer import Answer
from ztensor.conformance.asking import ask
from ztensor.conformance.judging import Outcome, Verdict, judge
from ztensor.conformance.reader import read_file
from ztensor.errors import ArgumentTypeError, ArgumentValueError, FormatError, SourceError, describe
from ztensor.ext import Pool, path_text
from ztensor.typing import Path, Progress

LISTING = "corpus.json"
SECONDS = 30.0
_MOST_LISTING = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The verdicts on a reader.

    Attributes:
        verdicts: one for each file, in the order of the corpus.
    """

    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Return whether every file is as expected."""
        return all(verdict.outcome is Outcome.EXPECTED for verdict in self.verdicts)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of files by outcome: `as expected`, `wrong`, `crashed`, `timed out`."""
        return _counts(self.verdicts)

    @property
    def sections(self) -> dict[str, dict[str, int]]:
        """Return the same for each section, in the order of their names."""
        found: dict[str, list[Verdict]] = collections.defaultdict(list)
        for verdict in self.verdicts:
            found[verdict.section].append(verdict)
        return {section: _counts(found[section]) for section in sorted(found)}

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """Return the verdicts that are not as expected."""
        return tuple(one for one in self.verdicts if one.outcome is not Outcome.EXPECTED)


def _counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    found = collections.Counter(verdict.outcome for verdict in verdicts)
    return {outcome.value: found[outcome] for outcome in Outcome}


def run_corpus(
    folder: Path,
    reader: Sequence[str] | Callable[[str], Answer] | None = None,
    *,
    seconds: float = SECONDS,
    memory: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> ConformanceReport:
    """Give every file of a corpus to a reader, and judge its answers.

    Args:
        folder: has `corpus.json` and the files it names.
        reader: a program and its first arguments, called with the path of each file; it answers as
            `docs/specification/conformance.md` defines. Or a function that takes a path. By
            default this library reads the files, in this process.
        seconds: time limit of one call of a program.
        memory: limit of its address space in bytes, on Linux; no limit by default.
        jobs: number of programs that run concurrently.
        progress: called with the number of finished files and of all files.

    Raises:
        FormatError: `corpus.json` is not a list of files.
        SourceError: `corpus.json` or a file is missing, or the program cannot be started.
        ArgumentValueError: the command is empty, or a number is not positive.
        ArgumentTypeError: the reader is a text, not a list of words.
    """
    call = _call_of(reader, seconds, memory)
    if jobs < 1:
        raise ArgumentValueError("jobs is a count", expected="at least 1", found=describe(jobs))
    path = path_text(folder)
    entries = _entries(path)
    places = [_place(path, entry) for entry in entries]
    workers = 1 if reader is None or callable(reader) else jobs
    verdicts = []
    with Pool(workers) as pool:
        futures = [pool.submit(call, place) for place in places]
        try:
            for entry, future in zip(entries, futures, strict=True):
                verdicts.append(judge(entry, _as_answer(future.result())))
                if progress is not None:
                    progress(len(verdicts), len(entries))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return ConformanceReport(tuple(verdicts))


def _as_answer(found: object) -> Answer:
    if isinstance(found, Answer):
        return found
    raise ArgumentTypeError(
        "a reader that is a function returns an Answer", found=describe(found, 40)
    )


def _call_of(
    reader: Sequence[str] | Callable[[str], Answer] | None, seconds: float, memory: int | None
) -> Callable[[str], Answer]:
    if reader is None:
        return read_file
    if callable(reader):
        return reader
    if isinstance(reader, str) or not all(isinstance(word, str) for word in reader):
        raise ArgumentTypeError(
            "a reader is a list of words, the program first", found=describe(reader)
        )
    command = list(reader)
    if not command or not command[0] or any("\0" in word for word in command):
        raise ArgumentValueError("a reader is a program and arguments", found=describe(command))
    if not seconds > 0 or not (memory is None or memory > 0):
        raise ArgumentValueError(
            "time and memory are above 0", found=f"{describe(seconds)}, {describe(memory)}"
        )
    return lambda path: ask(command, path, seconds=seconds, memory=memory)


def _entries(folder: str) -> list[dict[str, Any]]:
    """Return the entries of a corpus, each with the fields that every entry has."""
    path = os.path.join(folder, LISTING)
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_LISTING)
    except OSError as error:
        raise SourceError.from_os(error, "cannot read the corpus", path) from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("the list of a corpus is not JSON", file=path) from error
    entries = found.get("files") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise FormatError(
            "malformed list of a corpus",
            file=path,
            expected="`files`, a list of maps with `path`, `spec_version` and `expect`",
        )
    return entries


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or entry.get("expect") not in ("accept", "reject", "either"):
        return False
    objects = entry.get("objects", {})
    return (
        isinstance(entry.get("path"), str)
        and isinstance(entry.get("spec_version"), str)
        and (entry["expect"] != "reject" or {"stage", "rule"} <= entry.keys())
        and isinstance(objects, dict)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("shape"), list)
            and isinstance(one.get("components"), dict)
            and all(isinstance(part, dict) for part in one["components"].values())
            for one in objects.values()
        )
    )


def _place(folder: str, entry: dict[str, Any]) -> str:
    """Return the path of a file, which must exist below the corpus's folder."""
    steps = entry["path"].split("/")
    if not all(step not in ("", ".", "..") and "\0" not in step for step in steps):
        raise FormatError("a file of the corpus is not below its folder", found=entry["path"])
    place = os.path.join(folder, *steps)
    if not os.path.isfile(place):
        raise SourceError("a file of the corpus is missing", file=place)
    return place
