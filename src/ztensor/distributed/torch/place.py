"""The path of a checkpoint, for writers and readers."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed.checkpoint import filesystem

from ztensor.errors import without_secrets
from ztensor.ext import is_remote, path_text

# The version in the metadata of torch's own writer; older releases have none.
DCP_VERSION: str | None = getattr(filesystem, "CURRENT_DCP_VERSION", None)


class AtPlace:
    """A writer or reader of a folder or URL."""

    def _take_place(self, path: Any) -> None:
        self._path = path
        self._name = without_secrets(path_text(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether it is a path, or a URL of a known scheme."""
        if not isinstance(checkpoint_id, (str, os.PathLike)):
            return False
        path = path_text(checkpoint_id, absolute=True)
        return os.path.isabs(path) or is_remote(path)

    @property
    def checkpoint_id(self) -> str:
        """Return the folder, or the URL without its signature."""
        return self._name
