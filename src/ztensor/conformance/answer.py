"""The answer of a reader about one file: its exit code, and optional JSON.

| exit code | means |
| --- | --- |
| 0 | accepted: every object was read, or has an error of its own |
| 3 | refused: the format is unknown, or the file is wrong |
| any other | the reader crashed |

The JSON is one object. Every field may be missing; a missing field is not judged.

| field | means |
| --- | --- |
| `objects` | a map from names of objects to their content |
| `verified` | false if a check of digests or contents found damage, true if it found none |

| field of an object | means |
| --- | --- |
| `error` | a text: the object could not be read; the other fields are ignored |
| `shape` | a list of integers |
| `components` | a map from role to the sha256 of the decoded bytes, 64 hexadecimal digits |
| `dense_sha256` | the sha256 of the elements as one dense array, little-endian, C order |
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any


class Ended(enum.Enum):
    """How a call of a reader ended."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


ACCEPTED_CODE, REFUSED_CODE = 0, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a reader about one file.

    Attributes:
        ended: how the call ended.
        why: the cause of a crash.
        objects: the content by name; None if the answer has none.
        verified: whether the checks passed; None if the answer has no such field.
    """

    ended: Ended
    why: str = ""
    objects: dict[str, dict[str, Any]] | None = None
    verified: bool | None = None


def parse_answer(code: int, output: bytes) -> Answer:
    """Parse the answer of a reader.

    Args:
        code: the exit code; negative for the signal that killed the process.
        output: its standard output.
    """
    if code not in (ACCEPTED_CODE, REFUSED_CODE):
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return Answer(Ended.CRASHED, how)
    ended = Ended.ACCEPTED if code == ACCEPTED_CODE else Ended.REFUSED
    if not output.strip():
        return Answer(ended)
    try:
        found = json.loads(output)
    except (ValueError, RecursionError) as error:
        return Answer(Ended.CRASHED, f"its output is not JSON: {error}"[:200])
    if not isinstance(found, dict):
        return Answer(Ended.CRASHED, "its output is JSON, but not an object")
    objects, verified = found.get("objects"), found.get("verified")
    is_map = isinstance(objects, dict) and all(isinstance(one, dict) for one in objects.values())
    if objects is not None and not is_map:
        return Answer(Ended.CRASHED, "`objects` is not a map from names to maps")
    if not (verified is None or isinstance(verified, bool)):
        return Answer(Ended.CRASHED, "`verified` is neither true nor false nor null")
    return Answer(ended, "", objects, verified)
