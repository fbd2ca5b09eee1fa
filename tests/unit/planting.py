"""A folder, or a store in memory, in which tests plant files of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor

MODEL = ztensor.numpy.save({"mine": np.ones(3)})
TEXT = b"text of a user, who calls files as he likes"


class Area:
    """A folder, or what begins alike in a store.

    Args:
        folder: the folder; None for a store in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.store: Any = None
        if folder is None:
            self.store = pytest.importorskip("obstore.store").MemoryStore()
        else:
            folder.mkdir(exist_ok=True)

    def where(self, name: str = "") -> Any:
        """Return what opens or writes a file in it, or itself."""
        if self.folder is None:
            return ztensor.Remote(f"memory://area/{name}".rstrip("/"), self.store)
        return self.folder / name

    def put(self, name: str, body: bytes) -> None:
        if self.folder is None:
            self.store.put(f"area/{name}", body)
            return
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(body)

    def tree(self) -> dict[str, bytes]:
        """Return the bytes of all files by name; what is behind links is not in it."""
        if self.folder is None:
            paths = [one["path"] for page in self.store.list() for one in page]
            bodies = {path: bytes(self.store.get(path).bytes()) for path in paths}
            return {path.removeprefix("area/"): body for path, body in bodies.items()}
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
