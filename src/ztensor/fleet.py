"""Many files at once: verified, hashed, converted, their values looked at, by any executor."""

from ztensor.insight.fleet.processes import Processes
from ztensor.insight.fleet.verbs import (
    FileHash,
    convert_files,
    hash_files,
    stats_files,
    verify_files,
)

__all__ = [
    "FileHash",
    "Processes",
    "convert_files",
    "hash_files",
    "stats_files",
    "verify_files",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
