"""Detect that two distributions, which both install a package `ztensor`, are mixed.

This one is `pyztensor`; the other is called `ztensor`, like the package. The distribution installed
later overwrites files of the other, and uninstalling one removes files of both. This module imports
no module whose name the other distribution also has.
"""

from __future__ import annotations

import csv
import os
import sys
from typing import NamedTuple

_OURS, _OTHER = "pyztensor", "ztensor"
_RECORD_END = ".dist-info"


class Mixture(NamedTuple):
    """A mixture of two distributions.

    Attributes:
        is_broken: whether files of this distribution are missing or overwritten.
        message: the files, and the commands that repair the installation; several lines.
    """

    is_broken: bool
    message: str


def mixture(package: str | None = None) -> Mixture | None:
    """Return the mixture in the installation of this package, or None.

    It lists one folder, and files only if both distributions are installed or `__init__.py` is
    missing.

    Args:
        package: the folder of the package; by default this package.
    """
    package = package or os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    releases = _releases(site)
    if _OURS not in releases:
        return None  # a checkout or a plain copy
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
        lines.append(f"files of {_OTHER} now: {', '.join(taken)}")
    if missing:
        lines.append(f"missing of {_OURS}: {', '.join(missing)}")
    if not taken and not missing:
        lines.append(f"files of {_OURS} that uninstalling {_OTHER} removes: {', '.join(shared)}")
    lines.append(
        f"to have {_OURS} alone: {sys.executable} -m pip uninstall -y {_OTHER} {_OURS}, then "
        f"install {_OURS} again as before"
    )
    return Mixture(bool(taken or missing), "\n".join(lines))


def _releases(site: str) -> dict[str, str]:
    """Return the versions of the two distributions that are installed in a folder."""
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
    """Return the files of a distribution in the package: relative paths, and lengths."""
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
