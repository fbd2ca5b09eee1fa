"""Deltas of Fireworks and SGLang: their programs read ours, and ours theirs, bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.delta.chains import same
from ztensor import delta
from ztensor.numpy import load_file, save_file


def states(count: int) -> list[dict[str, Any]]:
    """Return states that follow one another, of several types."""
    dice = np.random.default_rng(2)
    shapes: dict[str, Any] = {
        "w": (ml_dtypes.bfloat16, (70, 401)),
        "large": (ml_dtypes.bfloat16, (1_500_000,)),
        "f32": (np.float32, (3, 5)),
        "none": (np.float32, (0, 4)),
        "scalar": (np.float16, ()),
        "codes": (np.uint8, (999,)),
    }
    made = [
        {
            name: dice.integers(0, 100, shape).astype(dtype)
            for name, (dtype, shape) in shapes.items()
        }
    ]
    for _ in range(count - 1):
        state = {name: array.copy() for name, array in made[-1].items()}
        for name in ("w", "large", "f32", "codes"):
            flat = state[name].reshape(-1)
            at = dice.choice(flat.size, flat.size // 3, replace=False)
            flat[at] = flat[at] + np.array(1, flat.dtype)
        made.append(state)
    return made


@pytest.mark.parametrize("coding", ["arc_v1", "arc_v2"])
def test_fireworks_deltas(tmp_path: Path, coding: str) -> None:
    package = pytest.importorskip("fireworks_delta_compression")
    old, new, theirs, ours, out = (
        tmp_path / f"{name}.safetensors" for name in ("old", "new", "theirs", "ours", "out")
    )
    before, after = states(2)
    save_file(before, old)
    save_file(after, new)
    files = {"src": str(old), "dst": str(new), "diff_file": str(theirs)}
    package.delta_compress_files_to_file(**files, compression_format=coding)
    with delta.open(theirs, dialect="arc") as found:
        delta.apply(found, old, out)
    assert same(load_file(out), after)
    delta.make(old, new, ours, dialect="arc")
    paths = {"base_path": str(old), "diff_path": str(ours)}
    package.delta_decompress_inplace(**paths, compression_format="arc_v2")
    assert same(load_file(old), after)


def test_fireworks_pickles_are_refused(tmp_path: Path) -> None:
    package = pytest.importorskip("fireworks_delta_compression")
    old, new, theirs = (tmp_path / f"{name}.safetensors" for name in ("old", "new", "theirs"))
    before, after = states(2)
    save_file({"large": before["large"]}, old)
    save_file({"large": after["large"]}, new)
    files = {"src": str(old), "dst": str(new), "diff_file": str(theirs)}
    package.delta_compress_files_to_file(**files, compression_format="arc_v3")
    try:
        with delta.open(theirs, dialect="arc") as found:  # a timer decides what is stored
            delta.apply(found, old, tmp_path / "out.safetensors")
        assert same(load_file(tmp_path / "out.safetensors"), load_file(new))
    except delta.DeltaError as error:
        assert error.reason is delta.DeltaReason.DIALECT  # noqa: PT017  # one of two outcomes


@pytest.mark.parametrize("values", ["difference", "new"])
@pytest.mark.parametrize("checksum", ["xxh3-128", "adler32"])
def test_sglang_pulls_our_versions(tmp_path: Path, values: Any, checksum: str) -> None:
    receiver = pytest.importorskip("sglang.srt.weight_sync.local_checkpoint")
    every, updates, base = states(4), tmp_path / "updates", tmp_path / "base"
    base.mkdir()
    save_file(every[0], base / "model.safetensors")
    for number in (1, 2, 3):
        folder = updates / f"weight_v{number:06}"
        how: Any = {"values": values, "checksum": checksum}
        delta.make(every[number - 1], every[number], folder, dialect="slime", **how)
    local = tmp_path / "local"
    for number in (1, 3):
        receiver.pull(str(local), str(base), str(updates), number)
        assert same(load_file(local / "model.safetensors"), every[number])
    shutil.rmtree(local)
    delta.apply(updates, base / "model.safetensors", tmp_path / "out.safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), every[3])
