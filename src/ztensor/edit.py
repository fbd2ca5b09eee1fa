"""Changes of finished files, new files out of old ones, and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.io import edit
from ztensor.io.edit import *  # noqa: F403  # all of its public names

if TYPE_CHECKING:
    from ztensor.converting.splitting import Shard, plan_split, split

__all__ = ["Shard", "plan_split", "split"]
__all__ += edit.__all__


def __getattr__(name: str) -> Any:
    """Load what makes shards of a file, which is a conversion."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ztensor.converting import splitting

    return getattr(splitting, name)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
