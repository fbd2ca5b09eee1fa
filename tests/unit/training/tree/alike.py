"""Compare two trees with their types, which `==` ignores."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np

from ztensor.training import Record


def assert_alike(found: Any, wanted: Any, where: str = "tree") -> None:
    """Assert that two trees are the same in types, order, bytes and structure."""
    assert type(found) is type(wanted), f"{where}: {type(found)}, not {type(wanted)}"
    if isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype, where
        assert found.shape == wanted.shape, where
        assert found.tobytes() == wanted.tobytes(), where
    elif isinstance(wanted, np.generic):
        assert found.tobytes() == wanted.tobytes(), where
    elif hasattr(wanted, "untyped_storage"):
        _assert_tensor(found, wanted, where)
    elif isinstance(wanted, (float, complex)):
        assert repr(found) == repr(wanted), where  # -0.0 differs from 0.0, and NaN equals itself
    elif isinstance(wanted, (dict, Record)):
        assert len(found) == len(wanted), where
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other, f"{where} key")
        for one, other in zip(found.values(), wanted.values(), strict=True):
            assert_alike(one, other, f"{where}[...]")
        assert getattr(found, "_metadata", None) == getattr(wanted, "_metadata", None), where
        assert getattr(found, "default_factory", None) is getattr(wanted, "default_factory", None)
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted), where
        for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_alike(one, other, f"{where}[{at}]")
    elif isinstance(wanted, (set, frozenset)):
        assert found == wanted, where
        assert sorted(str(type(one)) for one in found) == sorted(str(type(one)) for one in wanted)
    elif isinstance(wanted, io.BytesIO):
        assert found.getvalue() == wanted.getvalue(), where
        assert found.tell() == 0, where
    elif dataclasses.is_dataclass(wanted):
        assert_alike(vars(found), vars(wanted), where)
    else:
        assert found == wanted, where


def _assert_tensor(found: Any, wanted: Any, where: str) -> None:
    assert found.dtype == wanted.dtype, where
    assert found.device == wanted.device, where
    assert found.requires_grad == wanted.requires_grad, where
    assert found.layout == wanted.layout, where
    dense = [value.detach().to_dense().contiguous() for value in (found, wanted)]
    assert dense[0].shape == dense[1].shape, where
    bits = [value.reshape(-1).view(dtype=_integer(value)) for value in dense]
    assert bool((bits[0] == bits[1]).all()), where


def _integer(value: Any) -> Any:
    import torch

    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
    return widths[value.element_size()]
