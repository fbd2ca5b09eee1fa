"""crc32c's extension is loaded without its package, whatever release pyproject.toml allows."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ["big_endian", "crc32", "crc32c", "hardware_based"]
IMPORTS = "\n".join(f"from ._crc32c import {name} as {name}" for name in NAMES)
HASH = "from ._crc32hash import CRC32CHash as CRC32CHash"
# The package's `__init__`, from the first allowed release to the last.
RELEASES = {
    "2.7": f"{IMPORTS}\n{HASH}",
    "2.7.1": f"{IMPORTS}\n{HASH}",
    "2.8": f"from ._cli import main\n{IMPORTS}\n{HASH}",
    "2.9": f"from importlib.metadata import version\nfrom ._cli import main\n{IMPORTS}\n{HASH}\n"
    "__version__ = version('crc32c')",
}
PROGRAM = """
import sys
from ztensor.spec.digest import crc32c
print(hex(crc32c()(b"6789", crc32c()(b"12345", 0))), "crc32c" in sys.modules)
"""


def run(folder: Path) -> list[str]:
    """Run the program with the folder first on its path, and return its output."""
    program = f"import sys\nsys.path.insert(0, {str(folder)!r})\n{PROGRAM}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder that has the package `crc32c`, with the extension and nothing else."""
    found = importlib.util.find_spec("crc32c")
    assert found is not None
    assert found.origin is not None
    folder = tmp_path / "crc32c"
    folder.mkdir()
    (extension,) = [
        path for path in Path(found.origin).parent.glob("_crc32c.*") if path.suffix != ".pyi"
    ]
    shutil.copy(extension, folder)
    return folder


@pytest.mark.parametrize("text", RELEASES.values(), ids=RELEASES)
def test_the_extension_of_a_release_is_found_beside_its_package(package: Path, text: str) -> None:
    (package / "__init__.py").write_text(text)
    (package / "_crc32hash.py").write_text("raise AssertionError")
    (package / "_cli.py").write_text("raise AssertionError")
    assert run(package.parent) == ["0xe3069283", "False"]


def test_a_build_without_that_extension_is_imported_as_it_is(package: Path) -> None:
    (extension,) = package.iterdir()
    extension.unlink()
    text = "def crc32c(data, value=0): return 0xE3069283"
    (package / "__init__.py").write_text(text)
    assert run(package.parent) == ["0xe3069283", "True"]


def test_a_module_in_place_of_the_package_is_imported_as_it_is(package: Path) -> None:
    shutil.rmtree(package)
    package.with_suffix(".py").write_text("def crc32c(data, value=0): return 0xE3069283")
    assert run(package.parent) == ["0xe3069283", "True"]
