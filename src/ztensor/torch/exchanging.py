"""Elements that ranks of a group read for one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ztensor.errors import UsageError
from ztensor.torch.boxes import Box, Target, boxes_of

_WHOLE_BYTES = 1 << 30  # of tensors that the ranks of a group read before they exchange them
# By bytes of an element, the type as which elements are exchanged: gloo does not send float8.
_CARRIERS = {1: torch.uint8, 2: torch.float16, 4: torch.int32, 8: torch.int64}


class Rows(NamedTuple):
    """A `DTensor` that is read by rows, and then exchanged for its columns.

    Attributes:
        carrier: the same elements on the same mesh, divided by rows, of a type that every backend
            sends.
        boxes: the elements of this process.
    """

    carrier: Any
    boxes: tuple[Box, ...]

    @classmethod
    def of_each(cls, targets: Iterable[Target]) -> dict[str, Rows]:
        """Return the rows of those targets that have columns, and can be sent."""
        try:
            from torch.distributed import tensor
        except ImportError:  # before torch 2.5
            return {}
        found = {}
        for target in targets:
            places = getattr(target.value, "placements", ())
            carried = _CARRIERS.get(target.dtype.itemsize)
            is_plain = all(type(one) in (tensor.Shard, tensor.Replicate) for one in places)
            cuts = [one.dim % len(target.shape) for one in places if one.is_shard()]
            if is_plain and any(cuts) and carried is not None:
                rows = [tensor.Shard(0) if one.is_shard() else one for one in places]
                mesh = target.value.device_mesh
                how: Any = {"dtype": carried, "device_mesh": mesh, "placements": rows}
                carrier = tensor.zeros(*target.shape, **how)
                local = carrier.to_local().view(target.dtype)
                found[target.name] = cls(carrier, boxes_of(carrier, local, target.name))
        return found

    def exchange(self, value: Any) -> None:
        """Give each process of the mesh the elements that it has of `value`; all call it."""
        moved = self.carrier.redistribute(placements=value.placements).to_local()
        with torch.no_grad():
            value.to_local().copy_(moved.view(value.dtype))


def batches_of(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Yield the targets in order, about a GiB of whole tensors at a time, on each rank the same."""
    batch: list[Target] = []
    nbytes = 0
    for target in targets:
        batch.append(target)
        nbytes += math.prod(target.shape) * target.dtype.itemsize
        if nbytes >= _WHOLE_BYTES:
            yield batch
            batch, nbytes = [], 0
    yield batch


def agreed(group: Any, work: Callable[[], Any]) -> list[Any]:
    """Do work on each rank of a group, and return all results; raise on all where one fails."""
    if group is None:
        return [work()]
    failure: Exception | None = None
    result = None
    try:
        result = work()
    except Exception as error:  # noqa: BLE001  # raised below, after the others know
        failure = error
    answers: list[Any] = [None] * torch.distributed.get_world_size(group)
    own = failure and str(failure), result
    torch.distributed.all_gather_object(answers, own, group=group)
    if failure is not None:
        raise failure
    for rank, (text, _) in enumerate(answers):
        if text is not None:
            raise UsageError(f"rank {rank} could not read its share: {text}")
    return [answer for _, answer in answers]


def broadcast(local: torch.Tensor, group: Any) -> None:
    """Send the elements of the first rank of a group to the others."""
    whole = local.contiguous()
    first = torch.distributed.get_global_rank(group, 0)
    as_bytes = whole.reshape(-1).view(torch.uint8)  # gloo does not send float8
    torch.distributed.broadcast(as_bytes, first, group=group)
    if whole is not local:
        local.copy_(whole)
