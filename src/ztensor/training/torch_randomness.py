"""Save and restore the states of all random generators that a training run draws from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ztensor.errors import ArgumentValueError, describe

__all__ = ["random_state", "set_random_state"]


def random_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's generators, for a tree to be saved.

    Returns:
        `{"python": ..., "numpy": ..., "cpu": ...}`, and `"cuda"` with one state for each device
        if CUDA was used. `set_random_state` takes it.
    """
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # the generator that libraries draw from
        "cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Set the generators to a state of `random_state`.

    Args:
        state: the result of `random_state`, also after saving and loading.

    Raises:
        ArgumentValueError: it is not such a state, or has more CUDA devices than this machine.
    """
    try:
        python, numpy, cpu = state["python"], state["numpy"], state["cpu"]
        cuda = state.get("cuda")
        before = random_state()
        try:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_rng_state(cpu)
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)
        except Exception:
            random.setstate(before["python"])
            np.random.set_state(before["numpy"])
            torch.set_rng_state(before["cpu"])
            raise
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        raise ArgumentValueError(
            "these are not states of random numbers for this process",
            expected="what ztensor.torch.random_state() returns",
            found=describe(str(error), 100),
        ) from error
