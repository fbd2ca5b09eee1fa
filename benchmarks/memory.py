"""Memory before a measurement: its pages are there, and files are in the page cache or not."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from benchmarks.workloads import MIB

# A virtual machine gives free pages back to its host; the first touch of such a page costs many
# times a normal fault, and hits whoever comes after the peer that freed most. Touching this many
# times the data before each measurement pays it.
PREWARM = 2.5


def available_memory() -> int:
    """Return the bytes that can be had without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def prewarm(nbytes: int) -> None:
    """Touch `PREWARM` times the bytes, at most half of what is free, and give them back."""
    length = int(min(max(PREWARM * nbytes, 64 * MIB), available_memory() / 2))
    # MAP_PRIVATE, or it would be shared memory, which never has huge pages.
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE]
    pages[:] = 1
    del pages
    memory.close()


def evict(path: str) -> None:
    """Take a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # what is not on disk cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def fetch(path: str) -> None:
    """Bring a file into the page cache."""
    with open(path, "rb", buffering=0) as file:  # unbuffered
        buffer = bytearray(4 * MIB)
        while file.readinto(buffer):
            pass
