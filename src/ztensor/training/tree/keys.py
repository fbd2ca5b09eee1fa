"""What may be a key of a dict or an element of a set: counted once, for saving and for loading.

Keys are hashed, which recurses, and keys of one hash take quadratic time. So both are limited, and
what is beyond a limit is refused when it is saved, not only when it is loaded.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

# So many nodes of the shape may be open within a key, one in the other. What a set is made of, its
# tuple, is the first; a value that is made of a tuple counts twice.
KEY_DEPTH = 33
# So many keys of one dict may have one hash: the integers of 64 bits have eight at most.
MOST_ALIKE = 64


def are_spread(keys: Collection[Any]) -> bool:
    """Return whether keys have hashes that a dict of them is made from in linear time.

    Raises:
        TypeError: a key cannot be hashed.
    """
    if len(keys) <= MOST_ALIKE:
        return True
    hashes = collections.Counter(map(hash, keys))
    return len(hashes) == len(keys) or max(hashes.values()) <= MOST_ALIKE
