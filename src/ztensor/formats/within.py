"""A range of a source as a source of its own: a file inside another one."""

from __future__ import annotations

from ztensor.ext import Source, TensorObject


class Within(Source):
    """A range of bytes of a source, which it does not close.

    Args:
        source: the outer file.
        offset: the first byte.
        size: the number of bytes.
    """

    def __init__(self, source: Source, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self.name = source.name
        self.size = size
        self.prefers_long_reads = source.prefers_long_reads

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            SourceError: the bytes could not be read.
        """
        self._source.read_into(self._offset + offset, destination)


def moved(tensor_object: TensorObject, offset: int) -> TensorObject:
    """Return an object of an inner file with the offsets that it has in the outer one."""
    components = {
        role: component._replace(offset=offset + component.offset)
        for role, component in tensor_object.components.items()
    }
    return tensor_object._replace(components=components)
