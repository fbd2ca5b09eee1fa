"""The results of conversions, with their loss reports."""

from __future__ import annotations

import dataclasses

from ztensor.converting.casting import Change
from ztensor.errors import counted, describe
from ztensor.ext import Shown, Unrepresented


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Something that the new file cannot represent.

    Attributes:
        object_name: the object, or None for a loss of the file itself.
        sentence: a description of the loss, and how the object was written, if at all.
        kind: equal for losses of one kind; their sentences may differ in names and numbers.
    """

    object_name: str | None
    sentence: str
    kind: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", self.sentence)

    def __str__(self) -> str:
        """Return both on one line."""
        if self.object_name is None:
            return self.sentence
        return f"{describe(self.object_name)}: {self.sentence}"


@dataclasses.dataclass(frozen=True, slots=True)
class ConversionReport(Shown):
    """The result of a conversion.

    Attributes:
        path: the new file.
        format: its format, such as `zt` or `safetensors`.
        version: its version if the format is `zt`, else empty.
        inputs: paths of the files that were read; sources without a path are missing.
        objects: count of source objects that the new file has, completely or in part.
        source_nbytes: bytes of the files that were read.
        nbytes: bytes of the new file; after a dry run, an estimate.
        lost: content that the new file cannot represent.
        is_checked: whether it was read back and compared before it was put in place.
        unchecked: objects without a digest or another checksum in the source: earlier damage to
            them would not be noticed, though the new file has digests.
        files: the new file, or the shards of a set and last their index, which is also `path`.
        unrepresented: content of the source beside objects and attributes; each is lost, too.
        changed: objects with new elements, by `dtype`, `dequantize` or `quantize`.
    """

    path: str
    format: str
    version: str
    inputs: tuple[str, ...]
    objects: int
    source_nbytes: int
    nbytes: int
    lost: tuple[Loss, ...]
    is_checked: bool
    unchecked: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unrepresented: tuple[Unrepresented, ...] = ()
    changed: tuple[Change, ...] = ()

    @property
    def is_lossless(self) -> bool:
        """Return whether the new file has everything that was chosen, with unchanged elements."""
        return not self.lost and not self.changed

    def __repr__(self) -> str:
        """Return the counts of objects, bytes, losses and changes."""
        facts = [
            f"{describe(self.path, 200)} is {self.format} {self.version}".rstrip(),
            counted(self.objects, "object"),
            f"{self.nbytes:,} bytes",
            f"{counted(len(self.lost), 'thing')} lost" if self.lost else "nothing lost",
        ]
        if self.changed:
            facts.append(f"{counted(len(self.changed), 'object')} made {self.changed[0].now}")
        more = "; all: .lost" if self.lost else ""
        return f"<ztensor.converting.ConversionReport: {', '.join(facts)}{more}>"
