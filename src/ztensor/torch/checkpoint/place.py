"""Where a checkpoint is written or read: what torch asks of a writer and of a reader alike."""

from __future__ import annotations

import os
from typing import Any

from ztensor.boundary import public
from ztensor.source.paths import path_text


@public
class AtPlace:
    """A writer or reader of a folder or URL."""

    def _take_place(self, path: Any) -> None:
        self._path = path
        self._name = path_text(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether a checkpoint can be there: whether it is a path or a URL."""
        return isinstance(checkpoint_id, (str, os.PathLike))

    @property
    def checkpoint_id(self) -> str:
        """The folder or URL."""
        return self._name
