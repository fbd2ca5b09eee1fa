"""The id of a save, the same in all processes that take part in it.

With collectives the coordinator makes it, and plans carry it to the others. Planners may use a plan
of an earlier save again, so each process first gives its own plan a token, and takes an id only
from a plan with that token. Without collectives the store of the process group is asked, in which
each process counts its attempts to save into a folder: no process waits for another there.
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


class _Told(NamedTuple):
    """What the plan of a process carries.

    Attributes:
        token: the process' own, of this save.
        save: what the coordinator says; None before that.
    """

    token: str
    save: Save | None = None


def with_token(plan: SavePlan, token: str) -> SavePlan:
    """Return a plan that the coordinator is given, with the token of its process."""
    return dataclasses.replace(plan, storage_data=_Told(token))


def with_save(plans: list[SavePlan], save_id: str | None) -> list[SavePlan]:
    """Return the plans of all processes with the save; called by the coordinator.

    Args:
        plans: of each process; one that uses its last plan again carries nothing.
        save_id: what the caller gave; None makes one, where every process hears of it.
    """
    told = [one.storage_data for one in plans]
    if not all(isinstance(one, _Told) for one in told):
        return plans
    save = Save(save_id or secrets.token_hex(16), len(plans))
    return [
        dataclasses.replace(plan, storage_data=one._replace(save=save))
        for plan, one in zip(plans, told, strict=True)
    ]


def save_of_plan(plan: SavePlan, token: str) -> Save | None:
    """Return the save that the coordinator told this process of; None where it did not."""
    told = plan.storage_data
    return told.save if isinstance(told, _Told) and told.token == token else None


class SaveApart:
    """A save of processes that do not talk, as far as one of them knows.

    Args:
        folder: that of all.
        rank: the number of this process.
        save_id: what the caller gave; None has the processes agree on one.
    """

    def __init__(self, folder: str, rank: int, save_id: str | None) -> None:
        _ATTEMPTS[folder] += 1
        self._id = save_id
        self._store: Any = None
        self._key = f"ztensor/{folder}/{save_id or _ATTEMPTS[folder]}"
        try:
            self._store = dist.distributed_c10d._get_default_store()
            if save_id is None:
                found = self._store.compare_set(f"{self._key}/id", "", secrets.token_hex(16))
                self._id = bytes(found).decode()
            if self._store.add(f"{self._key}/{rank}", 1) == 1:
                self._store.add(self._key, 1)
        except Exception:  # noqa: BLE001  # no group, or no such store: the id is not known
            self._store = None

    @property
    def save(self) -> Save:
        """Return the save, and how many processes began it by now: there are at least as many."""
        if self._store is None:
            return Save(self._id)
        try:
            return Save(self._id, int(self._store.add(self._key, 0)))
        except Exception:  # noqa: BLE001  # the process that has the store is gone
            return Save(self._id)
