"""Random chains of changes equal the same changes to a dict, and never touch an older state."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import ztensor
from tests.faults.operations import small_pieces
from tests.property.chains import Chain

COMMITS = 15


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("version", "alignment"), [("1.2.0", None), ("2.1", 4096), ("2.1", None)])
def test_a_chain_of_edits_equals_a_dict(
    version: str,
    alignment: int | None,
    seed: int,
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.zt"
    chain = Chain(path, version, f"{seed} {alignment}", alignment=alignment)
    chain.check()
    for _ in range(COMMITS):
        before, inode = path.read_bytes(), path.stat().st_ino
        with small_pieces(2000) if seed % 2 else contextlib.nullcontext():
            done = chain.commit()
        chain.check()
        if path.stat().st_ino == inode:
            assert path.read_bytes().startswith(before), done
        if version == "2.1" and done.endswith("given up"):
            assert path.read_bytes() == before
        with ztensor.open(before) as reader:  # the state before the commit
            assert reader.verify().ok
