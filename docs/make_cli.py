"""Write `docs/reference/cli/`: the pages on the command line, out of the command's own help.

    make suite SUITE=pages

`index.md.in` is the frame of the first page. Behind its line `{{ verbs }}` are frames of verbs that
have more than their help. `{{ plot }}` becomes what `ztensor plot --help` says, and each example of
that help with what it prints; `{{ about }}` is what the command is, `{{ start }}` its examples,
`{{ overview }}` the list of verbs, `{{ exit codes }}` the table of codes. The first Python block
makes the files that the examples work on; each verb begins with these files anew.

Examples print as on a terminal of 80 columns. Four things are shown otherwise than
they are printed, since they differ: seconds, as `0.00 s`, the folder, not at all, the address of a
page, and the size of one, in tens of kilobytes, as each deflates a little better or worse.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from ztensor.cli.exits import ExitCode
from ztensor.cli.main import HELP, VERBS, find, main
from ztensor.cli.options import OUTPUT
from ztensor.cli.parsing import Command, load

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).with_name("reference") / "cli"
FRAME = FOLDER / "index.md.in"

_SLOT = re.compile(r"^\{\{ (.+) \}\}\n", re.MULTILINE)
_SECONDS = re.compile(r"\d+\.\d\d s\b")
_PAGE = re.compile(r"(?<=html: )([\d.]+) kB written")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]+/")
_ENTRY = re.compile(r"(\S.*?)(?: {2,}(\S.*))?")


class _Screen(io.TextIOWrapper):
    """Standard output and standard error in one, which says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.seek(0)
        return self.read()


class Help:
    """The help of a verb, or of the whole command, in its parts.

    Args:
        text: as `--help` has it: a sentence, paragraphs, and sections, which are a word with a
            colon and lines indented by two spaces.

    Attributes:
        paragraphs: what comes before the sections, the sentence first.
        sections: from their words to their lines.
    """

    def __init__(self, text: str) -> None:
        self.paragraphs: list[str] = []
        self.sections: dict[str, list[str]] = {}
        for part in text.strip().split("\n\n"):
            first, *rest = part.splitlines()
            if rest and all(line.startswith("  ") for line in rest):
                self.sections[first.removesuffix(":")] = [line[2:] for line in rest]
            else:
                self.paragraphs.append(" ".join([first, *rest]))

    @property
    def examples(self) -> list[tuple[str, str]]:
        """Commands, and what they are said to do."""
        lines = self.sections["Examples"]
        return [
            (command.removeprefix("$ "), effect.strip())
            for command, effect in zip(lines[::2], lines[1::2], strict=True)
        ]


def help_of(verb: str | None) -> Help:
    """Return the help of a verb, or of the whole command."""
    return Help(HELP if verb is None else command_of(verb).help)


def command_of(verb: str) -> Command:
    """Return a verb of the list, loaded."""
    found = find(verb)
    if found is None:
        raise ValueError(f"no verb: {verb}")
    return load(verb, found.place)


def run(command: str) -> tuple[str, int]:
    """Return what a command prints on a terminal, and its exit code."""
    program, *arguments = shlex.split(command)
    if program != "ztensor":
        raise ValueError(f"an example is a call of ztensor, not {command!r}")
    target = None
    if ">" in arguments:
        target = arguments[-1]
        arguments = arguments[: arguments.index(">")]
    screen = _Screen()
    out = screen if target is None else io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        mock.patch("ztensor.cli.terminal.PATIENCE_SECONDS", math.inf),  # no bar: it goes away
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(screen),
    ):
        try:
            main(arguments)
            code: object = 0
        except SystemExit as end:
            code = end.code
    if target is not None:
        out.seek(0)
        Path(target).write_text(out.read(), "utf-8")
    text = screen.text.replace(f"{Path.cwd().resolve()}{os.sep}", "")
    text = _PAGE.sub(lambda size: f"{round(float(size[1]), -1):.0f} kB written", text)
    text = _ADDRESS.sub("http://127.0.0.1:PORT/TOKEN/", text)
    return _SECONDS.sub("0.00 s", text), int(code) if isinstance(code, int) else 1


@contextlib.contextmanager
def samples() -> Iterator[Path]:
    """Give a folder with the files that the page's first Python block makes."""
    code = re.search(r"^```python\n(.*?)^```$", FRAME.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    if code is None:
        raise ValueError("the page makes no files")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        contextlib.chdir(folder),
    ):
        exec(compile(code[1], str(FRAME), "exec", dont_inherit=True), {})  # noqa: S102
        yield Path(folder)


@contextlib.contextmanager
def anew(folder: Path) -> Iterator[None]:
    """Work in a copy of a folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as other:
        shutil.copytree(folder, other, dirs_exist_ok=True)
        with contextlib.chdir(other):
            yield


def examples(verb: str | None, folder: Path) -> str:
    """Return the examples of a verb, run one after another."""
    parts = []
    with anew(folder):
        for command, effect in help_of(verb).examples:
            shown, code = run(command)
            asked = f"$ echo $?\n{code}\n" if code else ""
            sentence = effect[0].upper() + effect[1:]
            parts.append(f"{sentence}:\n\n```console\n$ {command}\n{shown}{asked}```\n")
    return "\n".join(parts)


def parameters(verb: str) -> str:
    """Return a table of arguments and options."""
    rows = []
    for option in command_of(verb).options:
        if option in OUTPUT:  # every verb has them; the page says once what they do
            continue
        words = [option.usage.strip("[]")] if option.is_argument else option.spellings
        rows.append((", ".join(map(_code, words)), option.help))
    return _table(("argument or option", ""), rows) if rows else ""


def _code(text: str) -> str:
    """Return code that may stand in a table: how a bar is escaped there differs among readers."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _table(heading: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [heading, ("---", "---"), *rows]
    return "".join(f"| {first} | {second} |\n".replace("|  |", "| |") for first, second in lines)


def prose_and_entries(lines: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return what a section says, and its list of keys and what they mean."""
    prose: list[str] = []
    entries: list[tuple[str, str]] = []
    for number, line in enumerate(lines):
        entry = _ENTRY.fullmatch(line)
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith(" "):
            key, value = entries[-1]
            entries[-1] = key, f"{value} {line.strip()}".lstrip()
        elif entry is not None and (entry[2] is not None or following.startswith("   ")):
            entries.append((entry[1], entry[2] or ""))
        else:
            prose.append(line)
    return " ".join(prose), entries


def section(verb: str, folder: Path) -> str:
    """Return all the page has of a verb but its heading."""
    about = help_of(verb)
    parts = [f"```text\n{command_of(verb).usage}\n```\n"]
    parts += [f"{text}\n" for text in about.paragraphs]
    table = parameters(verb)
    if table:
        parts.append(table)
    for word, lines in about.sections.items():
        if word == "Examples":
            continue
        prose, entries = prose_and_entries(lines)
        parts.append(f"**{word}.** {prose}".rstrip() + "\n")
        if entries:
            rows = [
                (", ".join(f"`{key}`" for key in keys.split(", ")), value)
                for keys, value in entries
            ]
            parts.append(_table(("key", "value"), rows))
    return "\n".join([*parts, examples(verb, folder)])


def overview() -> str:
    """Return the list of verbs, in the groups of the help."""
    parts = []
    for title, verbs in VERBS.items():
        rows = [(f"[`{name}`]({name}.md)", verb.summary) for name, verb in verbs.items()]
        parts.append(_table((title, ""), rows))
    return "\n".join(parts)


def exit_codes() -> str:
    """Return the table of exit codes."""
    return _table(("code", "meaning"), [(str(code.value), code.meaning) for code in ExitCode])


def pages() -> dict[str, str]:
    """Return all pages: `index`, and one for each verb."""
    first, _, others = FRAME.read_text("utf-8").partition("{{ verbs }}\n")
    verbs = [verb for group in VERBS.values() for verb in group]
    frames = {verb: f"# `ztensor {verb}`\n\n{{{{ {verb} }}}}\n" for verb in verbs}
    for text in re.split(r"^(?=# )", others, flags=re.MULTILINE)[1:]:
        frames[text.splitlines()[0].removeprefix("# `ztensor ").rstrip("`")] = text
    with samples() as folder:

        def fill(slot: re.Match[str]) -> str:
            match slot[1]:
                case "about":
                    about = re.sub(
                        r"(?<!\w)\.[a-z]\w*", r"`\g<0>`", " ".join(help_of(None).paragraphs[:2])
                    )
                    text = textwrap.fill(about, 100, break_on_hyphens=False)
                case "overview":
                    text = overview()
                case "exit codes":
                    text = exit_codes()
                case "start":
                    text = examples(None, folder)
                case verb:
                    text = section(verb, folder)
            return text.rstrip("\n") + "\n"

        return {
            name: _SLOT.sub(fill, frame).rstrip("\n") + "\n"
            for name, frame in {"index": first, **frames}.items()
        }


if __name__ == "__main__":
    for name, text in pages().items():
        FOLDER.joinpath(f"{name}.md").write_text(text, "utf-8", newline="\n")
