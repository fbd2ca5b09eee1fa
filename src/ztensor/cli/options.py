"""The arguments and options that several verbs take, each declared once, and bundles of them.

A verb has a bundle as one parameter: `how: Changing` gives it `--dry-run`, `--no-durable`,
`--no-lock` and `--timeout`, and is an object with their values when the verb is called. An option
that is added to a bundle is one of all its verbs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ztensor.digest import writable
from ztensor.model.formats import written_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# --- Files ----------------------------------------------------------------------------------

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A file of any known format, an index or folder of shards; - is standard input.",
    ),
]
FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Files of any known format, indexes or folders of shards; - is standard input. In a "
        "URL of a store * and ** match many.",
    ),
]
InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="IN",
        help="A file of any known format, an index or folder of shards; - is standard input.",
    ),
]
ChangedFileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A zTensor file, of any version.")
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Write a new file; by default FILE is replaced.",
        show_default=False,
    ),
]
NamedOutputOption = Annotated[  # as the verbs have it whose OUT is no argument
    str | None,
    typer.Option("--output", "-o", metavar="OUT", hidden=True, help="The same as OUT."),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help=f"{', '.join(written_formats())}; by default what OUT's suffix says.",
        show_default=False,
    ),
]

# --- Which objects --------------------------------------------------------------------------

GlobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="GLOB", help="Only names that match one of these.", show_default=False),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB", help="Only names that match, where * is any text; may be repeated."
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Leave out names that match; may be repeated."),
]

# --- How bytes are stored -------------------------------------------------------------------

CompressOption = Annotated[bool, typer.Option("--compress", help="Compress new data with zstd.")]
DIGESTS = [*writable(), "xxh3", "none"]
ChecksumOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(DIGESTS),
        help="Digest for data that has none yet; by default crc32c, and xxh3 in a file of 2.1.",
        autocompletion=lambda: DIGESTS,
        show_default=False,
    ),
]
VersionOption = Annotated[
    str,
    typer.Option(
        "--version",
        "--to-version",
        metavar="VERSION",
        help="Version of a .zt file: 2.1, 1.2.0, 1.1.0 or 0.1.0.",
    ),
]
AlignmentOption = Annotated[
    int | None,
    typer.Option(
        "--alignment",
        metavar="BYTES",
        help="Of 2.1: where blobs begin, a power of two from 4096 to 65536, the default.",
        show_default=False,
    ),
]
CanonicalOption = Annotated[
    bool,
    typer.Option("--canonical", help="Of 2.1: give the same tensors the same bytes, uncompressed."),
]
ChunkRowsOption = Annotated[
    int | None,
    typer.Option(
        "--chunk-rows",
        metavar="N",
        min=1,
        help="Rows that are compressed together; by default as many as fit in 64 KiB.",
        show_default=False,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of threads; by default one per core, four at most.",
        show_default=False,
    ),
]

JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Several files: do so many at a time, each in a process of its own.",
        show_default=False,
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Several files: let the workers of a Dask scheduler do them, such as tcp://host:8786.",
        show_default=False,
    ),
]

# --- How files are written ------------------------------------------------------------------

ForceOption = Annotated[
    bool,
    typer.Option(
        "--force", "--overwrite", help="Replace an output that exists; without it that is an error."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing; show exactly what would change.")
]
AtomicOption = Annotated[
    bool,
    typer.Option("--atomic", help="Change a copy, then replace the file by it."),
]
NoDurableOption = Annotated[
    bool,
    typer.Option("--no-durable", help="Do not wait for the disk: a power cut may undo it."),
]
NoLockOption = Annotated[
    bool,
    typer.Option(
        "--no-lock", help="Take no lock; for file systems without locks, if nobody else writes."
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        help="Wait this long if another process is writing; by default do not wait.",
        show_default=False,
    ),
]

# --- Bundles --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """What is printed; the runner of verbs adds it to each."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON to standard output, messages to standard error."),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print errors only; the exit code says the rest.")
    ] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """Which objects a verb is about."""

    include: IncludeOption = None
    exclude: ExcludeOption = None

    @property
    def is_given(self) -> bool:
        """Return whether there is any pattern."""
        return bool(self.include or self.exclude)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what the library's functions take that choose objects."""
        return {"include": self.include or None, "exclude": self.exclude or None}

    def also(self, patterns: Iterable[str] | None) -> Choice:
        """Return this choice with more patterns of which a name has to match one."""
        return Choice(include=[*(patterns or ()), *(self.include or ())], exclude=self.exclude)

    @property
    def keep(self) -> Callable[[str], bool]:
        """Return the name filter."""
        from ztensor.reading.names import keeps

        return keeps(self.include or None, self.exclude)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Jobs:
    """What does the work for several files."""

    jobs: JobsOption = None
    scheduler: SchedulerOption = None

    @property
    def is_given(self) -> bool:
        """Return whether files are done side by side, and not one after the other here."""
        return self.jobs is not None or self.scheduler is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewFile:
    """How a new file is written."""

    force: ForceOption = False
    dry_run: DryRunOption = False
    no_durable: NoDurableOption = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what the library's functions that write new files take."""
        return {"dry_run": self.dry_run, "durable": not self.no_durable}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changing:
    """How a zTensor file is changed, or rewritten in its place."""

    dry_run: DryRunOption = False
    no_durable: NoDurableOption = False
    no_lock: NoLockOption = False
    timeout: TimeoutOption = 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what the library's functions that change files take."""
        return {
            "dry_run": self.dry_run,
            "durable": not self.no_durable,
            "lock": not self.no_lock,
            "timeout": self.timeout,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Editing(Changing):
    """How a file is changed by an editor."""

    atomic: AtomicOption = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what an editor takes."""
        return super().arguments | {"atomic": self.atomic}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting(Changing):
    """How a zTensor file is written anew, in its place or as another."""

    output: OutputOption = None
    checksum: ChecksumOption = ""
    alignment: AlignmentOption = None
    canonical: CanonicalOption = False
    threads: ThreadsOption = None
    force: ForceOption = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what `ztensor.migrate` takes."""
        return super().arguments | {
            "durable": False if self.no_durable else "auto",
            "checksum": self.checksum or True,
            "alignment": self.alignment,
            "canonical": self.canonical,
            "threads": self.threads,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converting(Choice, NewFile):
    """How a file is written as one of any format."""

    max_shard_size: Annotated[
        str | None,
        typer.Option(
            "--max-shard-size",
            metavar="SIZE",
            help="Split larger models into shards with an index; for .zt and .safetensors.",
            show_default=False,
        ),
    ] = None
    named_output: NamedOutputOption = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing if anything would be lost.")
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read OUT back and compare it with IN before it is put in place."
        ),
    ] = False
    delete_input: Annotated[
        bool,
        typer.Option(
            "--delete-input",
            help="Delete IN when OUT is complete; implies --strict and --check.",
        ),
    ] = False
    alignment: AlignmentOption = None
    canonical: CanonicalOption = False
    threads: ThreadsOption = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what `ztensor.convert` takes."""
        return super().arguments | {
            "alignment": self.alignment,
            "canonical": self.canonical,
            "max_shard_size": self.max_shard_size,
            "strict": self.strict or self.delete_input,
            "check": self.check or self.delete_input,
            "durable": False if self.no_durable else "auto",
            "dry_run": self.dry_run,
        }
