"""Changes of finished files, new files out of old ones, and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ztensor.io.edit
from ztensor.io.edit import *  # noqa: F403  # all of its public names
from ztensor.registry import lazy

if TYPE_CHECKING:
    from ztensor.converting.merging import merge, names_in
    from ztensor.converting.splitting import Shard, plan_split, split
else:
    _HOMES = {
        "ztensor.converting.merging": "merge names_in",
        "ztensor.converting.splitting": "Shard plan_split split",
    }
    __getattr__ = lazy(__name__, _HOMES)

__all__ = ["Shard", "merge", "names_in", "plan_split", "split"]
__all__ += ztensor.io.edit.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
