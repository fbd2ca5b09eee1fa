"""Many files at once: verified, hashed, converted, their values looked at, by any executor."""

from ztensor.insight.fleet import (
    FileHash,
    Processes,
    convert_files,
    hash_files,
    stats_files,
    verify_files,
)
from ztensor.insight.fleet import __dir__ as __dir__

__all__ = [
    "FileHash",
    "Processes",
    "convert_files",
    "hash_files",
    "stats_files",
    "verify_files",
]
