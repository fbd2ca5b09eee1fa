"""States that follow one another, and their deltas."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ztensor import delta

State = dict[str, Any]


def walk(count: int) -> list[State]:
    """Return so many states, each with other values in some elements of the one before."""
    dice = np.random.default_rng(3)
    state: State = {
        "f32": dice.normal(size=(40, 50)).astype(np.float32),
        "bf16": dice.normal(size=3000).astype(ml_dtypes.bfloat16),
        "codes": dice.integers(0, 9, 500, np.uint8),
        "fixed": np.arange(7),
    }
    states = [state]
    for _ in range(count - 1):
        state = {name: array.copy() for name, array in state.items()}
        for name in ("f32", "bf16", "codes"):
            flat = state[name].reshape(-1)
            at = dice.choice(flat.size, flat.size // 50, replace=False)
            flat[at] = flat[at] + np.array(1, flat.dtype)
        states.append(state)
    return states


def publish(folder: Path, states: list[State], **options: Any) -> list[str]:
    """Write the deltas between states, under names in the wrong order; return their paths."""
    paths = []
    for number, (before, after) in enumerate(itertools.pairwise(states)):
        path = folder / f"{50 - number:02}.zt"
        delta.make(before, after, path, label=f"step {number + 1}", **options)
        paths.append(str(path))
    return paths


def same(found: Any, expected: State) -> bool:
    """Return whether two states are equal bit for bit."""
    return found.keys() == expected.keys() and all(
        np.asarray(found[name]).tobytes() == array.tobytes()
        and found[name].shape == array.shape
        and found[name].dtype == array.dtype
        for name, array in expected.items()
    )
