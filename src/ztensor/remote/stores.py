"""Keep the last stores for the next object of the same place.

A new store reads certificates, looks for credentials and connects anew: 10 ms on this machine
alone, and two or three round trips to a distant server. A store is reused if its place, its
options, the process and the environment's variables for stores and proxies are the same.
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
    """Return a kept store with the same arguments, or a new one.

    Args:
        kind: the store's class.
        place: its bucket, or its base URL.
        options: its other arguments. A store with a provider of credentials is not kept.

    Raises:
        Exception: any error of `kind`.
    """
    try:
        variables = [pair for pair in os.environ.items() if _VARIABLES.fullmatch(pair[0])]
        key = (os.getpid(), kind, place, _hashable(options), tuple(sorted(variables)))
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
    """Return a hashable key of options.

    Raises:
        TypeError: a value is an object, such as a provider of credentials.
    """
    if isinstance(value, dict):
        return tuple(sorted((str(name), _hashable(one)) for name, one in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    if type(value) not in _PLAIN:
        raise TypeError
    return type(value), value
