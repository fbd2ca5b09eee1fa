"""How the scripts of this corpus put files in place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent


def by_name(reasons: Mapping[str, Mapping[str, bytes]]) -> dict[str, tuple[bytes, str]]:
    """Return the bytes and the reason of each file to refuse, from the files of each reason."""
    return {
        name: (data, reason) for reason, files in reasons.items() for name, data in files.items()
    }


def as_json(value: object, *, is_sorted: bool = True) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=is_sorted) + "\n").encode()


def write(files: Mapping[Path, bytes]) -> None:
    """Write files at paths below the folder of this corpus."""
    for path, content in files.items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_bytes(content)
