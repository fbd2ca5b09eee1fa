"""What the manifest of a file that is being written will say."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ztensor.spec.model.manifest import Manifest, Shard, WrittenObjects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.spec.container import Emitter


class Draft:
    """What the manifest of a file that is being written will say.

    Args:
        emitter: writes it.

    Attributes:
        emitter: as given.
        version: the version text.
        objects: the objects so far.
        attributes: the file's own key-value pairs, or None.
        extra: fields of the root that no version names.
        shards: other files, in which components may stay.
    """

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.version = emitter.version
        self.objects = WrittenObjects()
        self.attributes: dict[str, object] | None = None
        self.extra: Mapping[str, object] | None = None
        self.shards: Mapping[str, Shard] = {}

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Set the file's own key-value pairs, all of them anew.

        Raises:
            NotRepresentableError: the version cannot hold them.
        """
        given = dict(attributes)
        self.emitter.require_attributes(given)
        self.attributes = copy.deepcopy(given)

    def emit(self, offset: int, previous_length: int) -> bytes:
        """Return everything that follows the last blob.

        Args:
            offset: where it will be.
            previous_length: length of the file before this commit, 0 for a new one.
        """
        shards = self.shards and self._named_shards()
        manifest = Manifest(
            self.version, self.objects, self.attributes, extra=self.extra, shards=shards
        )
        return self.emitter.emit(manifest, offset, prev=previous_length)

    def _named_shards(self) -> dict[str, Shard]:
        """Return the other files without those in which no object is any more."""
        parts = (part for one in self.objects.values() for part in one.components.values())
        used = {part.shard.name for part in parts if part.shard is not None}
        return {
            name: shard
            for name, shard in self.shards.items()
            if shard.start is None or name in used
        }
