"""Options of verbs as values, and groups of options that several verbs share.

A verb's module has `OPTIONS`, in the order of its help: `OPTIONS = (FILE, *CHOICE, Option(...))`.
The verb gets their values as one `argparse.Namespace`; the functions at the end turn the values of
a group into arguments of the library.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ztensor.ext import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable


class Option:
    """An argument, an option or a flag of a verb.

    Args:
        words: the name of an argument, or the spellings of an option.
        help: a sentence.
        is_flag: whether it takes no value.
        is_switch: whether it is a flag that is set, and `--no-...` unsets.
        is_name: whether shells complete it by the names of the objects in FILE.
        settings: arguments of `argparse.ArgumentParser.add_argument`.
    """

    def __init__(
        self,
        *words: str,
        help: str,
        is_flag: bool = False,
        is_switch: bool = False,
        is_name: bool = False,
        **settings: Any,
    ) -> None:
        if is_flag:
            settings["action"] = "store_true"
        if is_switch:
            settings |= {"action": argparse.BooleanOptionalAction, "default": True}
        if settings.get("action") == "append":
            settings["default"] = []
        if "choices" in settings:
            settings.setdefault("metavar", "|".join(settings["choices"]))
        self.words, self.help, self.is_name, self.settings = words, help, is_name, settings

    @property
    def is_argument(self) -> bool:
        """Return whether it is positional."""
        return not self.words[0].startswith("-")

    @property
    def metavar(self) -> str:
        """Return the placeholder of its value; empty for a flag."""
        word: str = self.settings.get("metavar", "")
        return word

    @property
    def spellings(self) -> list[str]:
        """Return the spellings of an option, each with the placeholder of its value."""
        words = sorted(self.words, key=len, reverse=True)
        if self.settings.get("action") is argparse.BooleanOptionalAction:
            words += [f"--no-{word[2:]}" for word in words]
        return [f"{word} {self.metavar}".rstrip() for word in words]

    @property
    def usage(self) -> str:
        """Return an argument as the usage line shows it."""
        nargs = self.settings.get("nargs")
        many = "..." if nargs in ("*", "+") and " " not in self.metavar else ""
        return f"[{self.metavar}{many}]" if nargs in ("*", "?") else f"{self.metavar}{many}"

    def add_to(self, parser: argparse.ArgumentParser) -> argparse.Action:
        """Add the option to a parser."""
        return parser.add_argument(*self.words, help=self.help.replace("%", "%%"), **self.settings)


def number(low: float, high: float | None = None, kind: type = int) -> Callable[[str], Any]:
    """Return a parser of numbers that refuses those out of bounds."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            word = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {word}") from None
        if not value >= low or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {bounds}")
        return value

    return parse


# --- Files ----------------------------------------------------------------------------------

_ANY_FILE = "A file of any known format, an index or folder of shards; - is standard input."
FILE = Option("file", metavar="FILE", help=_ANY_FILE)
FILES = Option(
    "files",
    nargs="+",
    metavar="FILE",
    help="Files of any known format, indexes or folders of shards; - is standard input. In a URL "
    "of a store * and ** match many.",
)
CHANGED_ZT_FILE = Option("file", metavar="FILE", help="A zTensor file, of any version.")
CHANGED_FILE = Option(
    "file",
    metavar="FILE",
    help="A .zt file of any version, or a .safetensors or .gguf file.",
)
MODEL = Option("file", metavar="MODEL", help=_ANY_FILE)
OTHER_MODEL = Option("other", nargs="?", metavar="OTHER", help="A second model to compare it with.")
NAMED_OUTPUT = Option("--output", "-o", dest="named_output", metavar="OUT", help="The same as OUT.")

# --- Which objects --------------------------------------------------------------------------

GLOBS = Option("globs", nargs="*", metavar="GLOB", help="Only names that match one of these.")
EXCLUDE = Option(
    "--exclude",
    action="append",
    metavar="GLOB",
    help="Leave out names that match; may be repeated.",
)
CHOICE = (
    Option(
        "--include",
        action="append",
        metavar="GLOB",
        help="Only names that match, where * is any text; may be repeated.",
    ),
    EXCLUDE,
)

# --- How bytes are stored -------------------------------------------------------------------

COMPRESS = Option("--compress", is_flag=True, help="Compress new data with zstd.")
CHECKSUM = Option(
    "--checksum",
    metavar="|".join([*ALGORITHMS, "none"]),
    help="Digest for data that has none yet; by default crc32c, and xxh3 in a file of 2.1.",
)
VERSION = Option(
    "--version",
    "--to-version",
    metavar="VERSION",
    help="Version of a .zt file: 2.1, 1.2.0, 1.1.0 or 0.1.0; by default 1.2.0.",
)
ALIGNMENT = Option(
    "--alignment",
    metavar="BYTES",
    type=number(1),
    help="Of 2.1: where blobs begin, a power of two from 4096 to 65536, the default.",
)
CANONICAL = Option(
    "--canonical",
    is_flag=True,
    help="Of 2.1: give the same tensors the same bytes, uncompressed.",
)
CHUNK_ROWS = Option(
    "--chunk-rows",
    metavar="N",
    type=number(1),
    help="Rows that are compressed together; by default as many as fit in 64 KiB.",
)
THREADS = Option(
    "--threads",
    metavar="N",
    type=number(1),
    help="Number of threads; by default one per core, four at most.",
)
JOBS = (
    Option(
        "--jobs",
        "-j",
        metavar="N",
        type=number(1),
        help="Process N files at a time, each in its own process.",
    ),
    Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Process files by the workers of a Dask scheduler, such as tcp://host:8786.",
    ),
)

# --- How files are written ------------------------------------------------------------------

FORCE = Option(
    "--force",
    "--overwrite",
    is_flag=True,
    help="Replace an output that exists; without it that is an error.",
)
DRY_RUN = Option("--dry-run", is_flag=True, help="Write nothing; show exactly what would change.")
_NO_DURABLE = Option(
    "--no-durable", is_flag=True, help="Do not wait for the disk: a power cut may undo it."
)
NEW_FILE = (FORCE, DRY_RUN, _NO_DURABLE)
LOCKING = (
    Option(
        "--no-lock",
        is_flag=True,
        help="Take no lock; for file systems without locks, if no other process writes.",
    ),
    Option(
        "--timeout",
        metavar="SECONDS",
        type=number(0, kind=float),
        default=0.0,
        help="Wait this long if another process is writing; by default do not wait.",
    ),
)
CHANGING = (DRY_RUN, _NO_DURABLE, *LOCKING)
EDITING = (
    Option("--atomic", is_flag=True, help="Change a copy, then replace the file by it."),
    *CHANGING,
)
CONVERTING = (
    Option(
        "--max-shard-size",
        metavar="SIZE",
        help="Split larger models into shards with an index; for .zt and .safetensors.",
    ),
    NAMED_OUTPUT,
    Option("--strict", is_flag=True, help="Write nothing if anything would be lost."),
    Option("--losses", is_flag=True, help="List every loss, not one of each kind."),
    Option(
        "--check",
        is_flag=True,
        help="Read OUT back and compare it with IN before it is put in place.",
    ),
    Option(
        "--delete-input",
        is_flag=True,
        help="Delete IN when OUT is complete; implies --strict and --check.",
    ),
    ALIGNMENT,
    CANONICAL,
    THREADS,
    *CHOICE,
    *NEW_FILE,
)
OUTPUT = (
    Option(
        "--json",
        is_flag=True,
        help="Print JSON to standard output, messages to standard error.",
    ),
    Option("--quiet", "-q", is_flag=True, help="Print errors only; the exit code says the rest."),
)


def new_file(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for functions that write new files, from `NEW_FILE`."""
    return {"dry_run": options.dry_run, "durable": not options.no_durable}


def changing(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for functions that change files, from `CHANGING`."""
    return {**new_file(options), "lock": not options.no_lock, "timeout": options.timeout}


def patterns(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for functions that choose objects, from `CHOICE`."""
    return {"include": options.include or None, "exclude": options.exclude or None}


def converting(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `ztensor.convert`, from `CONVERTING`."""
    return {
        **patterns(options),
        "alignment": options.alignment,
        "canonical": options.canonical,
        "max_shard_size": options.max_shard_size,
        "strict": options.strict or options.delete_input,
        "check": options.check or options.delete_input,
        "durable": False if options.no_durable else "auto",
        "dry_run": options.dry_run,
    }
