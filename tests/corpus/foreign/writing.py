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


def to_refuse(kind: str, suffix: str, cases: Mapping[str, tuple[bytes, str]]) -> dict[Path, bytes]:
    """Return the files to refuse of a format, and the listing of their reasons."""
    folder = Path("reject") / kind
    files = {folder / f"{name}.{suffix}": data for name, (data, _) in cases.items()}
    reasons = {f"{name}.{suffix}": reason for name, (_, reason) in cases.items()}
    return {**files, folder / "expected.json": as_json(reasons)}


def write(files: Mapping[Path, bytes]) -> None:
    """Write files at paths below the folder of this corpus."""
    for path, content in files.items():
        (HERE / path).parent.mkdir(parents=True, exist_ok=True)
        (HERE / path).write_bytes(content)
