"""`ztensor completions`: what teaches a shell to complete this command."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ztensor.cli.terminal import Terminal

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completions(
    terminal: Terminal,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")],
) -> None:
    """Print a script that completes verbs, options and names.

    `ztensor --install-completion` installs the script. This verb prints it, for packages and for
    those who manage such files themselves. Names of objects are completed from the file on the
    command line.

    Output:
      The script.

    JSON:
      shell, script   two texts

    Safety:
      It never changes settings of the shell.

    Exit code:
      0, or 2 for a shell it does not know.

    Examples:
      $ ztensor completions bash > ztensor.bash
        a file that bash reads with `source`
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(
        prog_name="ztensor", complete_var="_ZTENSOR_COMPLETE", shell=shell
    )
    for line in script.splitlines():
        terminal.line(line)
    terminal.result({"shell": shell, "script": script})
