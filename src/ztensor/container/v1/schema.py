"""The manifest of 1.1 and 1.2, read."""

from __future__ import annotations

import operator
import re
from itertools import islice
from typing import TYPE_CHECKING

from ztensor.container.v1.commit import parse_commit
from ztensor.container.v1.object import is_1_1, parse_object
from ztensor.container.walk import LEAST_OBJECTS, Form, Nesting, read_map, read_objects
from ztensor.errors import Reason, UnsupportedVersionError, describe
from ztensor.model.manifest import Manifest
from ztensor.model.problem import MOST_PROBLEMS, Problem, manifest_error
from ztensor.model.rules import ALIGNMENT
from ztensor.wire import cbor
from ztensor.wire.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.container.framing import Frame
    from ztensor.container.walk import Parse
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject

SECTION_ROOT = "1.2 section 1, Root"

_SELF_DESCRIBED = 55799  # RFC 7049 2.4.5: says "this is CBOR" and means nothing else
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")
_MAP, _TAG = 5, 6


def parse_manifest(
    data: bytes, frame: Frame, budget: Budget, *, least: int = LEAST_OBJECTS
) -> Manifest:
    """Return what the manifest says.

    Args:
        data: the manifest's bytes.
        frame: where they were in the file.
        budget: what the file may cost; of its limits, `depth` is used.
        least: as many objects are read side by side.

    Raises:
        ManifestError: it is not one well-formed CBOR map, or breaks rules (all are listed).
        UnsupportedVersionError: its major version is not 1.
        LimitError: it nests too deep.
    """
    before = budget.bytes_left
    with Nesting(budget.limits.depth):
        root = _Root(data, frame, budget, least)
        version = root.fields.get("version")
        if is_1_1(version) and not root.is_1_1:
            budget.release_to(before)  # the version follows the objects
            root = _Root(data, frame, budget, least, is_1_1=True)
    return root.manifest()


class _Root:
    """Reads the root of one manifest.

    Args:
        data: the manifest's bytes.
        frame: where they were in the file.
        budget: what the file may cost.
        least: as many objects are read side by side.
        is_1_1: whether the version is 1.1, if that is known.

    Attributes:
        fields: the fields of the root; `objects` is an empty map where it is a map.
        is_1_1: whether the objects were read as 1.1 has them.
    """

    def __init__(
        self, data: bytes, frame: Frame, budget: Budget, least: int, *, is_1_1: bool = False
    ) -> None:
        self._data, self._frame, self._budget, self._least = data, frame, budget, least
        self._depth = budget.limits.depth
        self.is_1_1 = is_1_1
        self.fields: dict[str, object] = {}
        self._problems: list[Problem] = []
        self._of_objects: list[Problem] = []
        self._objects: Mapping[str, TensorObject] = {}
        start, depth = self._start()
        end = read_map(data, start, self.fields, self._field, depth=depth, budget=budget)
        if end < len(data):
            raise cbor.trailing(end, len(data))

    def _start(self) -> tuple[int, int]:
        """Return where the root's map begins, and how deep it may nest."""
        data, pos, depth = self._data, 0, self._depth
        if data[:1] and data[0] >> 5 == _TAG:
            number, pos = cbor.tag_head(data, 0)
            pos, depth = (pos, depth - 1) if number == _SELF_DESCRIBED else (0, depth)
        if pos < len(data) and data[pos] >> 5 == _MAP:
            return pos, depth
        value = cbor.decode(data, depth=self._depth, budget=self._budget)
        if isinstance(value, cbor.Tag) and value.number == _SELF_DESCRIBED:
            value = value.value
        Record.of(value, self._problems, (), SECTION_ROOT, "a map as the manifest's root")
        raise manifest_error(self._problems)

    def _field(self, key: object, pos: int) -> tuple[object, int]:
        data, depth = self._data, self._depth - 1
        if key == "objects" and pos < len(data) and data[pos] >> 5 == _MAP:
            version = self.fields.get("version")
            if not isinstance(version, str) or _is_major(version):
                self.is_1_1 = self.is_1_1 or is_1_1(version)
                self._objects, self._of_objects, end = read_objects(
                    data,
                    pos,
                    self._begin,
                    FORM,
                    blobs_end=self._frame.manifest_offset,
                    depth=depth,
                    budget=self._budget,
                    least=self._least,
                )
                return {}, end
        if not isinstance(key, str) and not self._problems:
            found = "expected a map as the manifest's root, found a map with keys that are not text"
            self._problems.append(Problem(Reason.FIELD_TYPE, found, (), SECTION_ROOT))
        return cbor.decode_item(data, pos, depth=depth, budget=self._budget)

    def _begin(self, problems: list[Problem]) -> Parse:
        def parse(name: object, entry: object) -> TensorObject | None:
            if not isinstance(name, str):
                found = "expected a map with text keys, found a map with keys that are not text"
                problems.append(Problem(Reason.FIELD_TYPE, found, ("objects",), SECTION_ROOT))
                return None
            return parse_object(
                name, entry, self._frame, self._budget, problems, is_1_1=self.is_1_1
            )

        return parse

    def manifest(self) -> Manifest:
        """Return what it says.

        Raises:
            ManifestError: it breaks rules.
            UnsupportedVersionError: its major version is not 1.
        """
        problems = self._problems
        if problems:
            raise manifest_error(problems)
        root = Record(self.fields, problems, (), SECTION_ROOT)
        version = root.text("version")
        commit = parse_commit(root.ignorable("commit"), self._data)
        if version is not None and not _is_major(version):  # behind the digest: it may be damaged
            raise UnsupportedVersionError(
                "the manifest is of another major version; a newer reader is needed",
                expected="1.x",
                found=describe(version),
                section="1.2 appendix, Version Policy",
            )
        attributes = root.attributes("attributes")
        root.mapping("objects")
        problems += self._of_objects
        if problems or version is None:
            raise manifest_error(problems[:MOST_PROBLEMS])
        return Manifest(version, self._objects, attributes, commit, root.rest())


def _is_major(version: str) -> bool:
    """Return whether a version may be read: of this major version, or of a form of its own."""
    match = _MAJOR.match(version)
    return match is None or match[1].lstrip("0") == "1"


def _are_unique(names: list[str]) -> bool:
    """Return whether each name is there once."""
    # Writers sort names: to see that is four times faster than to hash them.
    is_sorted = all(map(operator.lt, names, islice(names, 1, None)))
    return is_sorted or len(set(names)) == len(names)


FORM = Form(
    start=b"\xa3" + cbor.encode_text("shape"),
    place=cbor.encode_text("offset"),
    between=cbor.encode_text("length"),
    has_tail=False,
    alignment=ALIGNMENT,
    packed="zstd",
    place_cost=0,
    are_names=_are_unique,
)
