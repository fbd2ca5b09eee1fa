"""Digests: spellings, check values, and the extension of crc32c without its package."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from tests.refusals import refused
from ztensor.errors import (
    DigestMismatchError,
    MissingDependencyError,
    Reason,
)
from ztensor.ext import ALGORITHMS
from ztensor.spec import digest as digests

parse_digest = digests.parse_digest
require_match = digests.require_match

NINE = b"123456789"
SHA_OF_NINE = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"


@pytest.mark.parametrize(
    ("name", "text"),
    [("crc32c", "crc32c:0xE3069283"), ("sha256", f"sha256:{SHA_OF_NINE}")],
)
@pytest.mark.parametrize("cuts", [(0, 9), (0, 1, 9), (0, 0, 4, 9, 9)], ids=str)
def test_the_check_value_in_the_spelling_of_released_writers(
    name: str, text: str, cuts: tuple[int, ...]
) -> None:
    pieces = [memoryview(NINE)[start:stop] for start, stop in pairwise(cuts)]
    assert ALGORITHMS[name].of(pieces) == text
    assert ALGORITHMS[name].of([bytes(piece) for piece in pieces]) == text


@pytest.mark.parametrize("cut", range(10))
def test_the_crc_of_a_zip_member_continues_behind_its_header(cut: int) -> None:
    digest = parse_digest(f"zip-crc32:{zlib.crc32(NINE[:cut]):08x}{zlib.crc32(NINE):08x}")
    assert digest.known is not None
    hasher = digest.known.hasher()
    hasher.update(NINE[cut:])
    require_match(digest, hasher.hexdigest())
    hasher.update(b"\0")
    with pytest.raises(DigestMismatchError) as caught:
        require_match(digest, hasher.hexdigest())
    assert caught.value.section is None


def test_xxh3_is_computed_by_its_library() -> None:
    pytest.importorskip("xxhash", reason="xxhash is optional")
    assert ALGORITHMS["xxh3"].of([b"a", b"bc"]) == "xxh3:78af5f94892f3950"


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with refused(MissingDependencyError, Reason.MISSING_DEPENDENCY, match="pip install xxhash"):
        ALGORITHMS["xxh3"].hasher()


SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "algorithm", "expected", "is_known"),
    [
        ("crc32c:0x1234ABCD", "crc32c", "1234abcd", True),
        ("crc32c:0X1234abcd", "crc32c", "1234abcd", True),
        ("crc32c:1234ABCD", "crc32c", "1234abcd", True),
        (f"SHA256:0x{SHA.upper()}", "sha256", SHA, True),
        ("xxh3:0123456789ABCDEF", "xxh3", "0123456789abcdef", True),
        ("xxh3:" + "ab" * 16, "xxh3", "ab" * 16, False),  # 128 bits: no text fixes the width
        ("md5:d41d8cd98f00b204e9800998ecf8427e", "md5", "d41d8cd98f00b204e9800998ecf8427e", False),
        ("blake3:not-hex=at+all", "blake3", "not-hex=at+all", False),
    ],
)
def test_every_spelling_is_read(text: str, algorithm: str, expected: str, is_known: bool) -> None:
    digest = parse_digest(text)
    assert digest == digests.Digest(algorithm, expected)
    assert (digest.known is ALGORITHMS.get(algorithm)) is (is_known or algorithm not in ALGORITHMS)
    assert (digest.known is not None) is is_known
    assert digests.check_digest(text) == []


def test_a_match_ignores_case_and_a_mismatch_says_both() -> None:
    digest = parse_digest("crc32c:0xE3069283")
    require_match(digest, "e3069283")
    require_match(digest, "E3069283")
    with pytest.raises(DigestMismatchError) as caught:
        require_match(digest, "E3069284")
    error = caught.value
    assert error.reason is Reason.DIGEST_MISMATCH
    assert (error.algorithm, error.expected, error.actual) == ("crc32c", "e3069283", "e3069284")


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
