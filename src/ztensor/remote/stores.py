"""Stores that were opened lately, kept for the next object of the same place.

A new one reads certificates, looks for credentials and makes new connections: 10 ms on this
machine alone, and two or three round trips to a server far away. So a store is used again where
its place, its options, the process and what the environment says of stores and proxies are the
same.
"""

from __future__ import annotations

import collections
import datetime
import os
import re
from typing import TYPE_CHECKING, Any

from ztensor.ext import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

_MOST = 16
_VARIABLES = re.compile(r"AWS_.*|.*_PROXY|SSL_CERT_.*", re.IGNORECASE)
_PLAIN = (str, bytes, int, float, bool, type(None), datetime.timedelta)

_lock = Lock()
_kept: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()


def store_of(kind: Callable[..., Any], place: str, options: Mapping[str, Any]) -> Any:
    """Return a store of obstore: the one that was made of all the same, or a new one.

    Args:
        kind: makes it.
        place: its bucket, or its base URL.
        options: what else it is made of; one that has others than plain values is not kept.

    Raises:
        Exception: what `kind` raises.
    """
    try:
        said = [(name, text) for name, text in os.environ.items() if _VARIABLES.fullmatch(name)]
        key = (os.getpid(), kind, place, _hashable(options), tuple(sorted(said)))
    except TypeError:
        return kind(place, **options)
    with _lock:
        store = _kept.get(key)
        if store is not None:
            _kept.move_to_end(key)
            return store
    store = kind(place, **options)
    with _lock:
        _kept[key] = store
        while len(_kept) > _MOST:
            _kept.popitem(last=False)
    return store


def _hashable(value: Any) -> Hashable:
    """Return what is equal for equal options alone.

    Raises:
        TypeError: they have something else than plain values, such as a provider of credentials.
    """
    if isinstance(value, dict):
        return tuple(sorted((str(name), _hashable(one)) for name, one in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    if type(value) not in _PLAIN:
        raise TypeError
    return type(value), value
