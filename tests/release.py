"""Build the distributions and try each as a stranger would: what `make release-check` runs.

Both are built from a clean copy of what git knows, the wheel from the source distribution. Each is
installed in an empty environment with nothing but what it asks for, and the wheel once more with
all extras; pip finds no conflict. Then the command answers, the README's quick start runs, and what
a package index would show is checked: metadata, and the README as a page. A second build must give
the same bytes.

    python tests/release.py [--keep FOLDER] [REQUIREMENT ...]

The folder keeps the distributions. The requirements, such as `torch==2.13.0`, choose among the
releases that the extras allow.
"""

from __future__ import annotations

import argparse
import email
import email.policy
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ["build>=1.2", "twine>=6.1", "readme-renderer[md]>=44"]
# 1980-01-01: the first moment a zip archive can name.
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")},
    "SOURCE_DATE_EPOCH": "315532800",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
RENDER = """
import sys
from readme_renderer.markdown import render
html = render(sys.stdin.read())
assert html, "the page does not render"
print(html)
"""


class ReleaseError(Exception):
    """Something a stranger would meet."""


def run(*command: str | Path, cwd: Path = ROOT, given: str | None = None) -> str:
    ended = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=ENVIRONMENT,
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    if ended.returncode:
        shown = " ".join(map(str, command))[:200]
        raise ReleaseError(f"{shown}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def environment(folder: Path, *packages: str | Path) -> Path:
    """Make an environment with packages in it, without conflicts, and return its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(python, "-m", "pip", "install", "--quiet", *packages)
    run(python, "-m", "pip", "check")
    return python


def build(tools: Path, source: Path, folder: Path) -> list[Path]:
    """Return the wheel and the source distribution made of a copy of what git knows."""
    run(tools, "-m", "build", "--outdir", folder, source)
    made = sorted(folder.iterdir(), key=lambda path: path.suffix)
    if [path.suffix for path in made] != [".gz", ".whl"]:
        raise ReleaseError(f"built {[path.name for path in made]}")
    return made


def require_same(first: list[Path], second: list[Path]) -> None:
    for one, other in zip(first, second, strict=True):
        if hashlib.sha256(one.read_bytes()).digest() != hashlib.sha256(other.read_bytes()).digest():
            raise ReleaseError(f"two builds of {one.name} differ")


def check_contents(sdist: Path, wheel: Path) -> None:
    """Hold what the distributions have to what the checkout has."""
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "ztensor").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    if names != package:
        raise ReleaseError(f"the wheel differs from the package: {sorted(names ^ package)[:9]}")
    with tarfile.open(sdist) as archive:
        within = {name.partition("/")[2] for name in archive.getnames()}
    for path in ("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "docs/concepts/safety.md"):
        if (ROOT / path).exists() and path not in within:
            raise ReleaseError(f"the source distribution has no {path}")


def check_metadata(tools: Path, wheel: Path) -> None:
    """Hold the metadata, and the README as a page, to what a reader needs of them."""
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(archive.read(path), policy=email.policy.default)
    for key in ("Summary", "Requires-Python", "License-Expression", "Keywords"):
        if not found[key]:
            raise ReleaseError(f"the metadata has no {key}")
    page = run(tools, "-c", RENDER, given=str(found.get_payload()))
    for link in re.findall(r'(?:href|src)="([^"]*)"', page):
        if not link.startswith(("https://", "#")):
            raise ReleaseError(f"on the package's page a link leads nowhere: {link}")


def check_installed(python: Path, folder: Path) -> None:
    """Run the command and the README's quick start with what the package alone brings."""
    folder.mkdir()
    version = re.search(
        r'__version__ = "(.*)"', (ROOT / "src/ztensor/__init__.py").read_text("utf-8")
    )
    command = python.parent / "ztensor"
    shown = run(command, "--version", cwd=folder).strip()
    if version is None or shown != f"ztensor {version[1]}":
        raise ReleaseError(f"ztensor --version says {shown!r}")
    readme = (ROOT / "README.md").read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    if not programs:
        raise ReleaseError("the README has no program")
    run(python, "-W", "error", "-c", "\n".join(programs), cwd=folder)
    listed = run(command, "ls", "model.zt", cwd=folder)
    if "weight" not in listed or "bias" not in listed:
        raise ReleaseError(f"ztensor ls shows\n{listed}")
    run(command, "verify", "model.zt", "large.zt", cwd=folder)


def main(kept: Path | None, chosen: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        source = work / "source"
        run("git", "clone", "--quiet", ROOT, source)
        tools = environment(work / "tools", *TOOLS)
        sdist, wheel = build(tools, source, kept or work / "first")
        print(f"built {sdist.name} and {wheel.name}", flush=True)
        require_same([sdist, wheel], build(tools, source, work / "second"))
        print("a second build gives the same bytes", flush=True)
        check_contents(sdist, wheel)
        run(tools, "-m", "twine", "check", "--strict", sdist, wheel)
        check_metadata(tools, wheel)
        print("metadata and the README as a page: ok", flush=True)
        for distribution in (sdist, wheel):
            kind = distribution.suffix.removeprefix(".")
            python = environment(work / f"with-{kind}", distribution)
            check_installed(python, work / f"tried-{kind}")
            print(f"{distribution.name}: installed alone, command and quick start: ok", flush=True)
        python = environment(work / "with-extras", *chosen, f"{wheel}[all]")
        check_installed(python, work / "tried-extras")
        print(f"{wheel.name}: installed with all extras, the same: ok", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("chosen", nargs="*", metavar="REQUIREMENT")
    options = parser.parse_args()
    try:
        main(options.keep and options.keep.resolve(), options.chosen)
    except ReleaseError as error:
        sys.exit(f"release check failed: {error}")
