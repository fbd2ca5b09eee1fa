"""This checkout at files of 2.x: it reads those of the 2.1.2 release, and writes its own."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import ours

from ztensor.numpy import save_file

START = ours.START

keys, one, mapped, owned, verify = ours.keys, ours.one, ours.mapped, ours.owned, ours.verify


def save(tensors: dict[str, Any], path: str) -> None:
    save_file(tensors, path, version="2.1", checksum="xxh3", durable=False)
