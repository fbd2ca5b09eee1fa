"""What a reader says of one file: its exit code, and the JSON it may have printed.

| exit code | means |
| --- | --- |
| 0 | it is a file, and all that the reader knows of was read; objects may have errors |
| 3 | refused: it is no file that the reader takes, or something in it is wrong |
| any other | the reader failed, as a program that was killed or left by an exception does |

The JSON is one object, of which every field may be missing; what is missing is not judged.

| field | means |
| --- | --- |
| `objects` | a map from the name of each object to what was read of it |
| `verified` | false where a check of digests or contents found damage, true where it found none |

| of an object | means |
| --- | --- |
| `error` | it could not be read: a text; the other fields are then not looked at |
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
    """What a reader says of one file.

    Attributes:
        ended: how the call ended.
        why: of one that crashed, how it did.
        objects: what it read, by name; None where it does not say.
        verified: what its checks found; None where it does not say.
    """

    ended: Ended
    why: str = ""
    objects: dict[str, dict[str, Any]] | None = None
    verified: bool | None = None


def parse_answer(code: int, output: bytes) -> Answer:
    """Return what a reader said.

    Args:
        code: how the process ended; below 0 the number of the signal that killed it.
        output: all it printed.
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
        return Answer(Ended.CRASHED, f"its output is no JSON: {error}"[:200])
    if not isinstance(found, dict):
        return Answer(Ended.CRASHED, "its output is JSON, but no object")
    objects, verified = found.get("objects"), found.get("verified")
    is_map = isinstance(objects, dict) and all(isinstance(one, dict) for one in objects.values())
    if objects is not None and not is_map:
        return Answer(Ended.CRASHED, "`objects` is no map from names to maps")
    if not (verified is None or isinstance(verified, bool)):
        return Answer(Ended.CRASHED, "`verified` is neither true nor false nor null")
    return Answer(ended, "", objects, verified)
