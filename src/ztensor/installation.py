"""Two distributions install a package called `ztensor`; say so where their files got mixed.

This one is `pyztensor`. The other is called `ztensor`, as the package is. Whichever is installed
later overwrites files of the other, and uninstalling one takes files away from the one that stays.
Nothing here imports a module of which the other distribution has one, too.
"""

from __future__ import annotations

import csv
import os
import sys
from typing import NamedTuple

_OURS, _OTHER = "pyztensor", "ztensor"
_RECORD_END = ".dist-info"


class Mixture(NamedTuple):
    """What is wrong with an installation.

    Attributes:
        is_broken: whether files of ours are missing or overwritten; else all still works.
        message: which files are whose and what mends it, some lines.
    """

    is_broken: bool
    message: str


def mixture(package: str | None = None) -> Mixture | None:
    """Return what is wrong with the installation this package is in; None where nothing is.

    One folder is listed. Files are looked at where both distributions are there, or ours has files
    beside which the package is incomplete.

    Args:
        package: the folder of the package; this one's by default.
    """
    package = package or os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    releases = _releases(site)
    if _OURS not in releases:
        return None  # a checkout, or a copy that no installer made
    is_alone = _OTHER not in releases
    if is_alone and os.path.exists(os.path.join(package, "__init__.py")):
        return None
    ours, other = (_files(site, name, releases.get(name)) for name in (_OURS, _OTHER))
    shared = sorted(ours.keys() & other.keys())
    missing = sorted(file for file in ours if _size(site, file) is None)
    taken = [file for file in shared if ours[file] != other[file] == _size(site, file)]
    lines = [
        f"files of {_OURS} {releases[_OURS]} are missing; uninstalling {_OTHER} takes them away"
        if is_alone
        else f"{_OURS} {releases[_OURS]} and {_OTHER} {releases[_OTHER]} are both installed, and "
        "both have the package 'ztensor'",
        f"where: {site!r}",
    ]
    if taken:
        lines.append(f"now those of {_OTHER}: {', '.join(taken)}")
    if missing:
        lines.append(f"missing of {_OURS}: {', '.join(missing)}")
    if not taken and not missing:
        lines.append(f"now those of {_OURS}, removed when {_OTHER} is: {', '.join(shared)}")
    lines.append(
        f"to have {_OURS} alone: {sys.executable} -m pip uninstall -y {_OTHER} {_OURS}, then "
        f"install {_OURS} again as before"
    )
    return Mixture(bool(taken or missing), "\n".join(lines))


def _releases(site: str) -> dict[str, str]:
    """Return the versions of both distributions in a folder, of those that are there."""
    found = {}
    try:
        names = os.listdir(site)
    except OSError:
        return {}
    for name in names:
        if name.endswith(_RECORD_END):
            distribution, _, version = name.removesuffix(_RECORD_END).partition("-")
            if distribution in (_OURS, _OTHER):
                found[distribution] = version
    return found


def _files(site: str, distribution: str, version: str | None) -> dict[str, int]:
    """Return what a distribution has in the package: paths from the folder, and lengths."""
    record = os.path.join(site, f"{distribution}-{version}{_RECORD_END}", "RECORD")
    try:
        with open(record, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 3 and row[2].isdigit()]
    except (OSError, UnicodeError, csv.Error):
        return {}
    return {path: int(size) for path, _, size in rows if path.startswith("ztensor/")}


def _size(site: str, file: str) -> int | None:
    try:
        return os.stat(os.path.join(site, file)).st_size
    except OSError:
        return None
