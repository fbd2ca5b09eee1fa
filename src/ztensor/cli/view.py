"""`ztensor view`: serve the page of a model to this machine, computed on demand."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from ztensor.cli.options import OTHER_MODEL, Option
from ztensor.cli.terminal import Terminal
from ztensor.cli.verb import STDIN, open_file
from ztensor.errors import ArgumentValueError
from ztensor.insight.serving.server import ViewServer

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

OPTIONS = (
    Option(
        "file",
        metavar="MODEL",
        help="A file of any known format, an index or folder of shards, a URL.",
    ),
    OTHER_MODEL,
    Option(
        "--browser",
        is_switch=True,
        help="Open a browser, or only print the address.",
    ),
    Option("--keep", is_flag=True, help="Keep serving when the page was closed; end by Ctrl-C."),
    Option("--seconds", metavar="S", type=float, help="End after this time at the latest."),
)


def view(terminal: Terminal, options: Namespace) -> None:
    """Look at a model in the browser, computed on demand.

    The page is the same as of `ztensor report`, and opens at once for any size: only manifests are
    read. Numbers, histogram and map of a tensor are computed when it is chosen, and abandoned when
    another one is; so are any slice of it and its singular values. Findings and the colours of
    layers need all values, and have a button.

    The page is served to this machine only, at an address that cannot be guessed. It ends 30
    seconds after the page was closed. On another machine: --no-browser, and
    `ssh -L PORT:127.0.0.1:PORT`.

    It needs a server: `pip install starlette uvicorn`.

    Output:
      The address.

    JSON:
      url             the address of the page

    Safety:
      It never changes a file. Nothing in a model can run in the page, and no other
      page, user or machine gets answers. If a file changes meanwhile, the page
      says so.

    Exit code:
      0 if the page was closed, or Ctrl-C pressed.

    Examples:
      $ ztensor view model.zt --no-browser --seconds 0.1
        print the address; without these options the page opens, and stays
      $ ztensor view model.zt changed.zt --no-browser --seconds 0.1
        two models beside each other
    """
    file, other = options.file, options.other
    if STDIN in (file, other):
        raise ArgumentValueError("view needs a file, not standard input")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(open_file(file))
        second = None if other is None else stack.enter_context(open_file(other))
        server = ViewServer(first, second, None if options.keep else ViewServer.idle)
        stack.callback(server.close)
        terminal.line(server.url)
        terminal.result({"url": server.url})
        sys.stdout.flush()
        if options.browser:
            stack.enter_context(_browser(server.url))
        if options.seconds is not None:
            timer = threading.Timer(max(options.seconds, 0), server.stop)
            stack.callback(timer.cancel)
            timer.start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run()


@contextlib.contextmanager
def _browser(url: str) -> Iterator[None]:
    """Open the page through a private file, so that no list of processes shows the token."""
    import tempfile
    import webbrowser

    with tempfile.TemporaryDirectory(prefix="ztensor-") as folder:  # 0700
        path = os.path.join(folder, "model.html")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={url}">')
        opening = threading.Thread(
            target=webbrowser.open, args=(f"file://{path}",), name="ztensor-browser", daemon=True
        )
        opening.start()
        yield
