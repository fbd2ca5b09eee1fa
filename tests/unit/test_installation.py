"""Two distributions with one package: every order of installing and uninstalling them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ztensor
from ztensor.installation import mixture

PACKAGE = Path(ztensor.__file__).parent
LIBRARIES = sysconfig.get_path("purelib")
OURS = f"pyztensor-{ztensor.__version__}"
THEIRS = {
    "__init__.py": "raise ImportError('the extension module of another distribution')\n",
    "numpy.py": "from ztensor import _extension\n",
    "_reader.py": "",
    "py.typed": "",
}


class Site:
    """A folder to which files are added and removed as pip does it, RECORD by RECORD."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, distribution: str, files: dict[str, bytes]) -> None:
        rows = []
        for name, content in files.items():
            path = self.folder / "ztensor" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            rows.append(f"ztensor/{name},sha256=unread,{len(content)}\n")
        info = self.folder / f"{distribution}.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("".join(rows) + f"{info.name}/RECORD,,\n", "utf-8")

    def uninstall(self, distribution: str) -> None:
        info = self.folder / f"{distribution}.dist-info"
        for row in (info / "RECORD").read_text("utf-8").splitlines():
            (self.folder / row.split(",")[0]).unlink(missing_ok=True)
        shutil.rmtree(info)

    def install_ours(self) -> None:
        files = {
            path.relative_to(PACKAGE).as_posix(): path.read_bytes()
            for path in PACKAGE.rglob("*")
            if path.suffix in (".py", ".typed")
        }
        self.install(OURS, files)

    def install_theirs(self) -> None:
        self.install("ztensor-1.2.3", {name: text.encode() for name, text in THEIRS.items()})

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from ztensor.cli.main import main; main()", *arguments]
        return self.python(*command[1:])

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", *arguments],  # -S: no editable installation comes in between
            env={"PYTHONPATH": os.pathsep.join([str(self.folder), LIBRARIES]), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def mixture(self) -> tuple[bool, str] | None:
        return mixture(str(self.folder / "ztensor"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.slow
def test_alone_there_is_nothing_to_say(site: Site) -> None:
    site.install_ours()
    assert site.mixture() is None
    ended = site.run("--version")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_checkout_has_nothing_to_say(tmp_path: Path) -> None:
    assert mixture() is None or (PACKAGE.parent / f"{OURS}.dist-info").exists()
    assert mixture(str(tmp_path / "gone" / "ztensor")) is None


@pytest.mark.slow
def test_theirs_then_ours_works_with_a_message(site: Site) -> None:
    site.install_theirs()
    site.install_ours()
    found = site.mixture()
    assert found is not None
    assert not found[0]
    ended = site.run("--version")
    assert ended.returncode == 0
    assert ended.stdout == f"ztensor {ztensor.__version__}\n"
    for part in ("pyztensor", "ztensor 1.2.3", "ztensor/numpy.py", "pip uninstall -y"):
        assert part in ended.stderr
    assert "ztensor/_reader.py" not in ended.stderr  # theirs alone


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("--version",), ("ls", "x"), ("--help",)], ids=str)
def test_ours_then_theirs_fails_with_what_mends_it(site: Site, verb: tuple[str, ...]) -> None:
    site.install_ours()
    site.install_theirs()
    (site.folder / "ztensor" / "__init__.py").write_text("", "utf-8")
    (site.folder / "ztensor-1.2.3.dist-info" / "RECORD").write_text(
        "ztensor/__init__.py,,0\nztensor/numpy.py,,30\n", "utf-8"
    )
    ended = site.run(*verb)
    assert ended.returncode == 1
    assert "files of ztensor now: ztensor/__init__.py" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_uninstalling_theirs_breaks_ours_with_a_message(site: Site) -> None:
    site.install_theirs()
    site.install_ours()
    site.uninstall("ztensor-1.2.3")
    ended = site.run("--version")
    assert ended.returncode == 1
    for file in ("ztensor/__init__.py", "ztensor/numpy.py"):
        assert file in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_failing_import_says_why(site: Site) -> None:
    site.install_ours()
    site.install_theirs()
    (site.folder / "ztensor" / "__init__.py").write_bytes((PACKAGE / "__init__.py").read_bytes())
    ended = site.python("-c", "import ztensor; ztensor.numpy")
    assert ended.returncode == 1
    assert "files of ztensor now: ztensor/numpy.py" in ended.stderr
