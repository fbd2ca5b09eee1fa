"""What a figure depends on besides the code: the machine, its load, the checkout."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def now() -> str:
    """Return date and time, to the minute."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def load() -> float:
    """Return how many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def describe() -> dict[str, Any]:
    """Return cores, processor, memory, kernel, Python, load and the commit of the checkout."""
    return {
        "cores": cores(),
        "processor": _first_value("/proc/cpuinfo", "model name") or platform.processor(),
        "memory_gb": round(_memory_bytes() / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "hugepages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_at_start": load(),
        "commit": commit(),
    }


def commit() -> str:
    """Return the checkout's commit, with a plus where files differ from it; empty without git."""
    head = _git("rev-parse", "--short", "HEAD")
    return head + ("+" if head and _git("status", "--porcelain", "src") else "")


def warnings(folder: Path) -> list[str]:
    """Return what makes the figures of a run less than they could be."""
    found = []
    if load() > 0.5 * cores():
        found.append(
            f"other processes are busy (load {load():.1f}, {cores()} cores): the figures are noise"
        )
    if _file_system(folder) in {"tmpfs", "ramfs"}:
        found.append(f"{folder} is a tmpfs, where mapping is several times dearer than on a disk")
    if cores() != 2:
        found.append(f"the goals are for two cores; this machine has {cores()}")
    return found


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _first_value(file: str, field: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")


def _chosen(file: str) -> str:
    """Return the word in brackets."""
    try:
        return Path(file).read_text(encoding="utf-8").split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "unknown"


def _file_system(folder: Path) -> str:
    """Return the type of the file system with the longest mount point above the folder."""
    best = ("", "")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind = line.split()[:3]
        if folder.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _git(*arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
