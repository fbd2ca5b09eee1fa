"""Agree on the id of a save in all its processes.

With collectives the coordinator makes the id, and plans carry it to the other processes. Planners
may reuse the plan of an earlier save, so each process puts a token into its plan, and takes an id
only from a plan with that token. Without collectives the processes use the store of the process
group, in which each counts its saves into a folder; none waits for another.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import distributed as dist

from ztensor.distributed.saves import Save

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import SavePlan

_ATTEMPTS: collections.Counter[str] = collections.Counter()


class _PlanData(NamedTuple):
    """The data in the plan of a process.

    Attributes:
        token: token of the process for this save.
        save: the save, None before the coordinator sets it.
    """

    token: str
    save: Save | None = None


def with_token(plan: SavePlan, token: str) -> SavePlan:
    """Return a plan for the coordinator, with the token of its process."""
    return dataclasses.replace(plan, storage_data=_PlanData(token))


def with_save(plans: list[SavePlan], save_id: str | None) -> list[SavePlan]:
    """Return the plans of all processes with the save; called by the coordinator.

    Args:
        plans: plans of the processes; a reused plan carries no token.
        save_id: the caller's id; None makes one if every process can learn it.
    """
    data = [one.storage_data for one in plans]
    if not all(isinstance(one, _PlanData) for one in data):
        return plans
    save = Save(save_id or secrets.token_hex(16), len(plans))
    return [
        dataclasses.replace(plan, storage_data=one._replace(save=save))
        for plan, one in zip(plans, data, strict=True)
    ]


def save_of_plan(plan: SavePlan, token: str) -> Save | None:
    """Return the save from a plan of the coordinator, None if it has none."""
    data = plan.storage_data
    return data.save if isinstance(data, _PlanData) and data.token == token else None


class SaveApart:
    """A save of processes without collectives, as far as one of them knows.

    Args:
        folder: the folder of all processes.
        rank: number of this process.
        save_id: the caller's id; None agrees on one.
    """

    def __init__(self, folder: str, rank: int, save_id: str | None) -> None:
        _ATTEMPTS[folder] += 1
        self._id = save_id
        self._store: Any = None
        self._key = f"ztensor/{folder}/{save_id or _ATTEMPTS[folder]}"
        try:
            self._store = dist.distributed_c10d._get_default_store()
            if save_id is None:
                agreed = self._store.compare_set(f"{self._key}/id", "", secrets.token_hex(16))
                self._id = bytes(agreed).decode()
            if self._store.add(f"{self._key}/{rank}", 1) == 1:
                self._store.add(self._key, 1)
        except Exception:  # noqa: BLE001  # no group, or no such store: the id stays unknown
            self._store = None

    @property
    def save(self) -> Save:
        """Return the save, with the number of processes that have begun it so far."""
        if self._store is None:
            return Save(self._id)
        try:
            return Save(self._id, int(self._store.add(self._key, 0)))
        except Exception:  # noqa: BLE001  # the process with the store is gone
            return Save(self._id)
