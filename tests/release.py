"""Build the distributions and try each as a stranger would: what `make release-check` runs.

Both are built from a clean copy of what git knows, the wheel from the source distribution; a second
build must give the same bytes. Each is installed in empty environments with nothing but what it
asks for: both on this CPython, the wheel on every CPython found, there with the small extras, too,
and once with all extras. pip finds no conflict, the command answers, and the README's programs and
commands run and print what it shows. mypy and pyright read users' code of `tests/typing` beside the
installed wheel. What a package index would show is checked: the metadata, the README as a page and
its links, and that the wheel has no test code.

    python tests/release.py [--keep FOLDER] [REQUIREMENT ...]

The folder keeps the distributions. The requirements, such as `torch==2.13.0`, choose among the
releases that the extras allow.
"""

from __future__ import annotations

import argparse
import ast
import email
import email.policy
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import pythons

ROOT = Path(__file__).resolve().parent.parent
# Extras whose libraries are a few megabytes; torch and JAX are tried on one CPython.
SMALL_EXTRAS = "sparse,foreign,plot,remote,view,completion"
CHECKERS = ["mypy>=1.15", "basedpyright>=1.31"]
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


def environment(folder: Path, *packages: str | Path, command: str | None = None) -> Path:
    """Make an environment with packages in it, without conflicts, and return its interpreter.

    Args:
        folder: where it is made.
        packages: what pip installs.
        command: the CPython it is of; this one by default.
    """
    if command is None:
        venv.create(folder, with_pip=True)
    else:
        run(command, "-m", "venv", folder)
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
        for name in names:
            if name.endswith(".py"):
                check_module(name, archive.read(name))
    if names != package:
        raise ReleaseError(f"the wheel differs from the package: {sorted(names ^ package)[:9]}")
    with tarfile.open(sdist) as members:
        within = {name.partition("/")[2] for name in members.getnames()}
    for path in ("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "docs/concepts/safety.md"):
        if (ROOT / path).exists() and path not in within:
            raise ReleaseError(f"the source distribution has no {path}")


def check_module(name: str, source: bytes) -> None:
    """Refuse a module that is a test, or that needs what tests need."""
    allowed = {"hypothesis"} if name == "ztensor/testing/strategies.py" else set()
    if Path(name).name.startswith(("test_", "conftest")):
        raise ReleaseError(f"the wheel has test code: {name}")
    for node in ast.walk(ast.parse(source)):
        found = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        roots = {each.partition(".")[0] for each in found}
        if wrong := roots & {"pytest", "hypothesis", "tests"} - allowed:
            raise ReleaseError(f"{name} imports {sorted(wrong)}")


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
    blocks = re.findall(r"^```(python|console)\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    if {kind for kind, _ in blocks} != {"python", "console"}:
        raise ReleaseError("the README has no program or no command")
    for kind, text in blocks:
        if kind == "python":
            run(python, "-W", "error", "-c", text, cwd=folder)
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, expected = part.partition("\n")
            printed = run(command, *line.split()[1:], cwd=folder)
            # A pipe gets plain columns, so the first word of each line is compared.
            if not {row.split()[0] for row in expected.splitlines()[:-1]} <= set(printed.split()):
                raise ReleaseError(f"{line} prints\n{printed}\nand not\n{expected}")


def check_links() -> None:
    """Refuse a link of the README that leads to no file of the repository."""
    for target in re.findall(
        r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text("utf-8")
    ):
        if not (ROOT / target).exists():
            raise ReleaseError(f"the README links to {target}, which is not there")


def check_types(python: Path, folder: Path) -> None:
    """Read users' code with both checkers, as a project that has the wheel installed."""
    folder.mkdir()
    for name in ("api.py", "user_code.py"):
        shutil.copy(ROOT / "tests" / "typing" / name, folder)
    run(python, "-m", "mypy", "--strict", ".", cwd=folder)
    run(python, "-m", "basedpyright", "--level", "error", "--pythonpath", python, ".", cwd=folder)


def check_on(interpreter: pythons.Interpreter, wheel: Path, work: Path) -> None:
    """Try the wheel on a CPython: alone, and with the small extras."""
    for kind, asked in {"alone": str(wheel), "small extras": f"{wheel}[{SMALL_EXTRAS}]"}.items():
        name = f"{interpreter.name}-{kind.replace(' ', '-')}"
        python = environment(work / f"on-{name}", asked, command=interpreter.command)
        check_installed(python, work / f"tried-{name}")
        print(f"CPython {interpreter.name}, {kind}: command and README: ok", flush=True)


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
        check_links()
        print("contents, metadata, the README as a page and its links: ok", flush=True)
        python = environment(work / "with-sdist", sdist)
        check_installed(python, work / "tried-sdist")
        print(f"{sdist.name}: installed alone, command and README: ok", flush=True)
        for interpreter in pythons.interpreters(pythons.candidates()):
            if interpreter.has_venv:
                check_on(interpreter, wheel, work)
        python = environment(work / "with-checkers", wheel, *CHECKERS)
        check_types(python, work / "typed")
        print("mypy and pyright over users' code: ok", flush=True)
        python = environment(work / "with-extras", *chosen, f"{wheel}[all]")
        check_installed(python, work / "tried-extras")
        print(f"{wheel.name}: installed with all extras, command and README: ok", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("chosen", nargs="*", metavar="REQUIREMENT")
    options = parser.parse_args()
    try:
        main(options.keep and options.keep.resolve(), options.chosen)
    except ReleaseError as error:
        sys.exit(f"release check failed: {error}")
