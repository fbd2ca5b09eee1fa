"""Bytes to Manifest and back, without I/O: framing, then one schema file per container.

Read `framing.py` first: it locates the manifest from head bytes, tail bytes and file size. Then the
schemas, none of which imports another: `v1.py` of 1.1 and 1.2, which have the same structure and
therefore share a file; `v0_1.py`; `v1_0.py` of the undocumented container of releases 1.0.0 and
1.0.1, which is only read; and `v2/` of 2.x. All schemas read their map of objects by `walk.py`,
one by one, or by `kinds.py`, many at a time, and write it by `entries.py`. `SCHEMAS` and
`EMITTERS` are the tables; a new version is one file and a line in each.
"""

from __future__ import annotations

from collections.abc import Callable

from ztensor.arguments import require_choice
from ztensor.registry import Registry
from ztensor.spec.container.entries import Emitter as Emitter
from ztensor.spec.container.framing import Container
from ztensor.spec.model.manifest import Manifest

# `parse_manifest(data, frame, budget)` of each container.
SCHEMAS: Registry[Container, Callable[..., Manifest]] = Registry(
    {
        Container.V0_1: "ztensor.spec.container.v0_1:parse_manifest",
        Container.V1_0: "ztensor.spec.container.v1_0:parse_manifest",
        Container.V1: "ztensor.spec.container.v1:parse_manifest",
        Container.V2: "ztensor.spec.container.v2.schema:parse_manifest",
    }
)


class Emitters(Registry[str, Callable[..., Emitter]]):
    """The table of writable versions, by version text.

    Attributes:
        latest: the version written by default.
    """

    latest = "1.2.0"

    def known(self, version: object) -> str:
        """Return the table's key for a version as a caller writes it, such as `1.2.0` for `1.2`.

        Raises:
            ArgumentValueError: no such version can be written.
        """
        known = _ALIASES.get(version, version) if isinstance(version, str) else ""
        if known not in self:
            require_choice("version", version, tuple(self))
        return known

    def named(self, version: object) -> Emitter:
        """Return an emitter for a version as a caller writes it.

        Raises:
            ArgumentValueError: no such version can be written.
        """
        return self[self.known(version)]()

    def older(self, version: str) -> Emitter | None:
        """Return an emitter for a file's version text; None if it is the latest or not writable."""
        # Any text 1.1.x is written as 1.1.0: they share one container.
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
# Other spellings of versions. Files of 2.0 and 2.1 are identical.
_ALIASES = {"0.1": "0.1.0", "1.1": "1.1.0", "1.2": "1.2.0", "2": "2.1", "2.0": "2.1"}
