"""`ztensor completions`: what teaches a shell to complete this command."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ztensor.cli.verb import running

Shell = Literal["bash", "zsh", "fish", "powershell"]


def completions(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")],
) -> None:
    """Print a script that completes verbs, options and names of objects in a shell.

    `ztensor --install-completion` puts it where the shell finds it; this prints it, for packages
    and for those who keep such files themselves.

    Example: ztensor completions bash > ~/.local/share/bash-completion/completions/ztensor
    """
    with running(json=False, quiet=False) as terminal:
        from typer.completion import get_completion_script  # type: ignore[attr-defined]

        script = get_completion_script(
            prog_name="ztensor", complete_var="_ZTENSOR_COMPLETE", shell=shell
        )
        for line in script.splitlines():
            terminal.line(line)
