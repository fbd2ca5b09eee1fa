"""The role, layer and group of a tensor, by its name.

A role is shared by tensors of several layers: their name without the number of the layer, and their
shape. Names are only hints, as nothing else of the model is known.
"""

from __future__ import annotations

import collections
import functools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY = "*"  # stands for the layer's number in the name of a role

_SEPARATOR = re.compile(r"::|[./]")
_DIGITS = re.compile(r"([0-9]+)")
_MOST_PARTS = 64
_MOST_DIGITS = 6  # most digits of a layer's number; longer ones are serial numbers
_ENOUGH = 3  # least number of layers for the first number of a name to be the layer

_OPTIMIZER = re.compile(
    r"(?:^|[./_])(?:exp_avg|exp_avg_sq|max_exp_avg_sq|momentum|momentum_buffer|optimizer"
    r"|optimizer_state|opt_state|optim)(?:$|[./])"
)
_BUFFER = re.compile(
    r"stft|basis|inv_freq|freqs|mask|position|pos_emb|rotary|relative_coords|running_|window"
    r"|anchor|grid|_idx|mel_|filterbank|quantile",
    re.IGNORECASE,
)


class Role(NamedTuple):
    """The role of a tensor, and its layer.

    Attributes:
        name: the name with `*` in place of the layer's number.
        shape: the shape of all tensors of the role.
        layer: the number of the layer.
    """

    name: str
    shape: tuple[int, ...]
    layer: int


def parts_of(name: str) -> list[str]:
    """Return a name cut at `.`, `/` and `::`, into at most 64 parts."""
    return _SEPARATOR.split(name, _MOST_PARTS - 1)


def natural_key(name: str) -> tuple[object, ...]:
    """Return a sort key for names: part by part, numbers by value.

    Names under one parent are adjacent, and layer 10 follows layer 9.
    """
    return tuple(map(_part_key, parts_of(name)))


@functools.lru_cache(1 << 12)
def _part_key(part: str) -> tuple[object, ...]:
    return tuple(int(piece) if odd % 2 else piece for odd, piece in enumerate(_DIGITS.split(part)))


def roles_of(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[Role | None]:
    """Return the role of each tensor; None if no other tensor has it.

    A number counts if it is a whole part of the name. Of several, as in `layers.3.experts.7.w`, the
    first is the layer if it enumerates layers.

    Args:
        names: the names of all tensors.
        shapes: their shapes.
    """
    candidates = [_candidates(name, shape) for name, shape in zip(names, shapes, strict=True)]
    counts = collections.Counter(role[:2] for some in candidates for role in some)
    chosen: list[Role | None] = []
    for some in candidates:
        enough = next((role for role in some if counts[role[:2]] >= _ENOUGH), None)
        best = enough or max(some, key=lambda role: counts[role[:2]], default=None)
        chosen.append(best if best is not None and counts[best[:2]] > 1 else None)
    return chosen


def _candidates(name: str, shape: tuple[int, ...]) -> list[Role]:
    parts = parts_of(name)
    return [
        Role(".".join([*parts[:at], ANY, *parts[at + 1 :]]), shape, int(part))
        for at, part in enumerate(parts)
        if len(part) <= _MOST_DIGITS and part.isascii() and part.isdigit()
    ]


def is_optimizer_state(name: str) -> bool:
    """Return whether a name is that of an optimizer state."""
    return _OPTIMIZER.search(name) is not None


def is_buffer(name: str) -> bool:
    """Return whether a name is that of a constant, such as a mask."""
    return _BUFFER.search(name) is not None


def groups_of(names: Sequence[str]) -> list[str]:
    """Return the group of each tensor: its first part that differs among them."""
    parts = [parts_of(name) for name in names]
    depth = 0
    shortest = min(map(len, parts), default=0)
    while depth + 1 < shortest and len({one[depth] for one in parts}) == 1:
        depth += 1
    return [".".join(one[: depth + 1]) for one in parts]
