"""Bytes to Manifest and back, without I/O: framing, then one schema file per container.

Read `framing.py` first: it locates the manifest from head bytes, tail bytes and file size. Then
`v1.py`, the schema of 1.1 and 1.2, which no reader can tell apart by structure and which therefore
share a file; `v0_1.py`; and `v1_0.py`, the undocumented container of releases 1.0.0 and 1.0.1,
which is only read; and `v2/`, the schema of 2.x. Schemas import no other. `walk.py` reads a map
of objects one by one, and `kinds.py` many of them side by side, for every version that has one;
`entries.py` writes it. `SCHEMAS` and `EMITTERS` are the tables; a new version is one file and a
line in each.
"""

from __future__ import annotations

from collections.abc import Callable

from ztensor.arguments import require_choice
from ztensor.limits import Budget
from ztensor.registry import Registry
from ztensor.spec.container.entries import Emitter as Emitter
from ztensor.spec.container.framing import Container, Frame
from ztensor.spec.model.manifest import Manifest

SCHEMAS: Registry[Container, Callable[[bytes, Frame, Budget], Manifest]] = Registry(
    {
        Container.V0_1: "ztensor.spec.container.v0_1:parse_manifest",
        Container.V1_0: "ztensor.spec.container.v1_0:parse_manifest",
        Container.V1: "ztensor.spec.container.v1:parse_manifest",
        Container.V2: "ztensor.spec.container.v2.schema:parse_manifest",
    }
)


class Emitters(Registry[str, Callable[..., Emitter]]):
    """The table of versions that are written, and what a caller names by their texts.

    Attributes:
        latest: what is written where the caller names none.
    """

    latest = "1.2.0"

    def known(self, version: object) -> str:
        """Return the version that a caller names, as the table has it.

        Raises:
            ArgumentValueError: there is none of that name that is written.
        """
        known = _ALIASES.get(version, version) if isinstance(version, str) else ""
        if known not in self:
            require_choice("version", version, tuple(self))
        return known

    def named(self, version: object) -> Emitter:
        """Return what writes a version that a caller names.

        Raises:
            ArgumentValueError: there is none of that name that is written.
        """
        return self[self.known(version)]()

    def older(self, version: str) -> Emitter | None:
        """Return what writes the version of a file, None where that is the latest or none."""
        # A later text of 1.1 than ours is 1.1 all the same: there is one container.
        known = "1.1.0" if version.startswith("1.1") else _ALIASES.get(version, version)
        return self[known]() if known in self.lines and known != self.latest else None


EMITTERS = Emitters(
    {
        "0.1.0": "ztensor.spec.container.v0_1:Emitter01",
        "1.1.0": "ztensor.spec.container.v1:Emitter11",
        "1.2.0": "ztensor.spec.container.v1:Emitter12",
        "2.1": "ztensor.spec.container.v2.emit:Emitter21",
    }
)
# Other words for versions. The texts 2.0 and 2.1 differ in no byte of a file.
_ALIASES = {"0.1": "0.1.0", "1.1": "1.1.0", "1.2": "1.2.0", "2": "2.1", "2.0": "2.1"}
