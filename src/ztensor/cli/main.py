"""The command `ztensor` and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from ztensor.cli.append import append
from ztensor.cli.compact import compact
from ztensor.cli.completions import completions
from ztensor.cli.compress import compress
from ztensor.cli.convert import convert
from ztensor.cli.decompress import decompress
from ztensor.cli.demo import demo
from ztensor.cli.diff import diff
from ztensor.cli.exits import ExitCode
from ztensor.cli.export import export
from ztensor.cli.hash import hash_
from ztensor.cli.info import info
from ztensor.cli.ls import ls
from ztensor.cli.merge import merge
from ztensor.cli.migrate import migrate
from ztensor.cli.mv import mv
from ztensor.cli.plot import plot
from ztensor.cli.repair import repair
from ztensor.cli.replace import replace
from ztensor.cli.rm import rm
from ztensor.cli.set import set_
from ztensor.cli.show import show
from ztensor.cli.split import split
from ztensor.cli.stats import stats
from ztensor.cli.verb import running
from ztensor.cli.verify import verify

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<3}  {code.meaning}" for code in ExitCode
)

app = typer.Typer(
    name="ztensor",
    help="Look into zTensor files, check them, change them safely, and mend them.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # plain help: rich takes longer to load than the help to print
    pretty_exceptions_enable=False,  # they print local variables, a stranger's names among them
)


def _print_version(value: bool) -> None:  # noqa: FBT001  # typer calls it so
    if value:
        import ztensor

        with running(json=False, quiet=False) as terminal:
            terminal.line(f"ztensor {ztensor.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


_LOOKING = (ls, info, show, stats, plot, diff, verify, hash_, demo, completions)
_CHANGING = (append, replace, rm, mv, set_, compact, repair, merge, split)
_REWRITING = (convert, export, migrate, compress, decompress)
for _verb in (*_LOOKING, *_CHANGING, *_REWRITING):
    app.command(_verb.__name__.rstrip("_"), epilog=_EXIT_CODES)(_verb)


def main() -> None:
    """Run the command; `SystemExit` carries the exit code."""
    app()


if __name__ == "__main__":
    main()
