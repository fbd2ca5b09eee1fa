"""What a conversion did, and what the new file cannot say."""

from __future__ import annotations

import dataclasses

from ztensor.converting.casting import Change
from ztensor.errors import counted, describe
from ztensor.ext import Shown, Unrepresented


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Something the new file cannot say.

    Attributes:
        object_name: the object, or None where it is the file's own.
        sentence: what is lost, and how the object was written, if at all.
        kind: equal for losses of one kind, whose sentences may differ in names and numbers.
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
    """What a conversion did.

    Attributes:
        path: the new file.
        format: its format, such as `zt` or `safetensors`.
        version: its version where the format is `zt`, else empty.
        inputs: the files that were read; those without a path are not named.
        objects: how many objects of the source the new file has, in whole or in part.
        source_nbytes: bytes of the files that were read.
        nbytes: bytes of the new file; after a dry run what it would have.
        lost: what the new file cannot say.
        is_checked: whether it was read back and compared before it was put in place.
        unchecked: objects whose bytes came without a digest or another checksum: whether they are
            what was once saved nobody can tell, though the new file has digests of them.
        files: what was written: the new file, or the shards of a set and last their index, which
            `path` is then.
        unrepresented: what the source says beside objects and attributes; each is lost, too.
        changed: objects whose elements are others because `dtype` or `dequantize` asked for it.
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
        """Return whether the new file says everything that was chosen, with the same elements."""
        return not self.lost and not self.changed

    def __repr__(self) -> str:
        """Return what was written, and how much was lost on the way."""
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
