"""Values that a state may have: those that a checkpoint keeps, and those that it refuses."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch


class Point(NamedTuple):
    """A class of a user's own."""

    x: int
    y: float


_FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
_FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
_WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def _of_type(name: str) -> torch.Tensor:
    dtype = getattr(torch, name)
    if name in _FP8:
        return torch.arange(56, 80, dtype=torch.uint8).reshape(4, 6).view(dtype)
    if name == "bool":
        return torch.arange(24).reshape(4, 6) % 3 == 0
    return torch.arange(24).reshape(4, 6).to(dtype)


def _tied() -> dict[str, torch.Tensor]:
    shared = torch.arange(1000.0)
    return {"in": shared, "out": shared}


def _optimizer() -> dict[str, Any]:
    weight = torch.nn.Parameter(torch.arange(6.0))
    optimizer = torch.optim.AdamW([weight], lr=1e-3)
    weight.grad = torch.ones(6)
    optimizer.step()
    state: dict[str, Any] = optimizer.state_dict()
    return state


def _saved() -> io.BytesIO:
    buffer = io.BytesIO()  # as torchtitan's TrainState keeps its losses
    torch.save([1.0, 2.0], buffer)
    return buffer


# Each is a state by itself; those that cannot be kept are in `REFUSED`.
VALUES: dict[str, Callable[[], dict[str, Any]]] = {
    **{
        name: functools.partial(lambda name: {"x": _of_type(name)}, name)
        for name in (*_FLOATS, *_FP8, *_WHOLE)
    },
    "float4 x2": lambda: {"x": torch.arange(24, dtype=torch.uint8).reshape(4, 6).view(
        torch.float4_e2m1fn_x2)},
    "0-d": lambda: {"x": torch.tensor(7.5)},
    "empty": lambda: {"x": torch.zeros(0, 4)},
    "transposed": lambda: {"x": torch.arange(12.0).reshape(3, 4).t()},
    "a slice": lambda: {"x": torch.arange(24.0).reshape(4, 6)[1:, ::2]},
    "expanded": lambda: {"x": torch.arange(3.0).expand(4, 3)},
    "channels_last": lambda: {"x": torch.arange(48.0).reshape(2, 2, 3, 4).contiguous(
        memory_format=torch.channels_last)},
    "conjugated": lambda: {"x": torch.arange(4).to(torch.complex64).mul(1j).conj()},
    "Parameter": lambda: {"x": torch.nn.Parameter(torch.arange(4.0))},
    "tied": _tied,
    "sparse COO": lambda: {"x": torch.eye(4).to_sparse()},
    "sparse CSR": lambda: {"x": torch.eye(4).to_sparse_csr()},
    "list of tensors": lambda: {"x": [torch.ones(2), torch.zeros(3)]},
    "nested dicts": lambda: {"a": {"b": {"c": torch.ones(2), "d": 3}, "e": "text"}},
    "optimizer": _optimizer,
    "int": lambda: {"x": 3, "t": torch.ones(1)},
    "large int": lambda: {"x": 1 << 100, "t": torch.ones(1)},
    "float, nan": lambda: {"x": float("inf"), "t": torch.ones(1)},
    "None and bool": lambda: {"x": None, "y": True, "t": torch.ones(1)},
    "str": lambda: {"x": "text", "t": torch.ones(1)},
    "bytes": lambda: {"x": b"\0\xff", "t": torch.ones(1)},
    "BytesIO": lambda: {"x": io.BytesIO(b"\0\xff"), "y": {"z": _saved()}, "t": torch.ones(1)},
    "list": lambda: {"x": [1, 2.5, "c", None], "t": torch.ones(1)},
    "tuple": lambda: {"betas": (0.9, 0.999), "t": torch.ones(1)},
    "state of random": lambda: {
        "x": ("MT19937", np.arange(624, dtype=np.uint32), 3, 0, 0.0),
        "y": torch.get_rng_state(),
    },
    "set": lambda: {"x": {1, 2}, "t": torch.ones(1)},
    "torch.Size, dtype": lambda: {"x": torch.Size([2, 3]), "y": torch.bfloat16, "t": torch.ones(1)},
    "tuple with a tensor": lambda: {"x": (torch.arange(3), 4), "t": torch.ones(1)},
    "only values": lambda: {"x": 3},
    "nothing": dict,
}  # fmt: skip
REFUSED: dict[str, Callable[[], dict[str, Any]]] = {
    "a function": lambda: {"schedule": {"lr_lambda": print}, "t": torch.ones(1)},
    "an object": lambda: {"schedule": {"thing": object()}, "t": torch.ones(1)},
    "sparse CSC": lambda: {"x": torch.eye(4).to_sparse_csc()},
    "complex32": lambda: {"x": torch.zeros(4, dtype=torch.complex32)},
    "quantized": lambda: {"x": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)},
    "meta": lambda: {"x": torch.ones(4, device="meta")},
}


def emptied(value: Any) -> Any:
    """Return a value of the same form with wrong numbers."""
    if isinstance(value, dict):
        return {key: emptied(one) for key, one in value.items()}
    if isinstance(value, list) and any(isinstance(one, (torch.Tensor, dict)) for one in value):
        return [emptied(one) for one in value]
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(size=value.shape, dtype=value.dtype, check_invariants=True)
    if value.layout is torch.sparse_csr:
        return torch.zeros(value.shape, dtype=value.dtype).to_sparse_csr()
    return torch.empty_like(value.detach(), memory_format=torch.contiguous_format)


def is_same(found: Any, expected: Any) -> bool:
    """Return whether two values are alike in type, layout and every bit."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(found, torch.Tensor) or found.dtype != expected.dtype:
            return False
        if (found.layout, found.shape) != (expected.layout, expected.shape):
            return False
        if found.layout is not torch.strided or found.is_quantized:
            return bool(torch.equal(_plain(found), _plain(expected)))
        pair = [one.detach().resolve_conj().contiguous().reshape(-1) for one in (found, expected)]
        return bool(torch.equal(*(one.view(torch.uint8) for one in pair)))
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and np.array_equal(found, expected)
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            is_same(found[key], one) for key, one in expected.items()
        )
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(expected, io.BytesIO):
        return bool(found.getvalue() == expected.getvalue())
    return bool(found == expected)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
