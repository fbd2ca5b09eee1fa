"""The small manifests that were read last, by every byte they were made of.

Programs open one file again and again: for each tensor, for each batch, in each worker thread.
What a manifest says depends on its bytes, on where they lay and on the caps, and on nothing else.
So where all of these are the same, what was made of them is given again. Only what nobody can
change is kept: dense objects without attributes of their own, and attributes of the file that are
single values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.model.table import TableObjects

if TYPE_CHECKING:
    from ztensor.container import Frame
    from ztensor.limits import Limits
    from ztensor.model.manifest import Manifest, TensorObject

    Key = tuple[bytes, Frame, Limits]

# Of a longer one the rest of what a caller does takes longer than to read it.
MOST_BYTES = 64 << 10
_MOST_KEPT = 8
# So many last bytes, a digest in most manifests, find what was kept: then all are compared, which
# takes a tenth of the time that hashing them all does.
_LAST_BYTES = 64

_VALUES = (str, int, float, bool, bytes, type(None))
_known: dict[bytes, tuple[Key, Manifest]] = {}


def recall(key: Key) -> Manifest | None:
    """Return what was made of the same bytes before, or None."""
    found = _known.get(key[0][-_LAST_BYTES:])
    return found[1] if found is not None and found[0] == key else None


def remember(key: Key, manifest: Manifest) -> None:
    """Keep what was made of some bytes, where nobody can change it; what was kept first goes."""
    if not _is_fixed(manifest):
        return
    # No lock: a process that is forked while another thread has it would wait for ever.
    for old in list(_known)[: 1 - _MOST_KEPT]:
        _known.pop(old, None)
    _known[key[0][-_LAST_BYTES:]] = key, manifest


def forget() -> None:
    """Keep nothing of what was read before."""
    _known.clear()


def _is_fixed(manifest: Manifest) -> bool:
    objects = manifest.objects
    others = objects.others if isinstance(objects, TableObjects) else objects
    return (
        not manifest.extra
        and not manifest.shards
        and all(isinstance(value, _VALUES) for value in (manifest.attributes or {}).values())
        and all(_is_fixed_object(one) for one in others.values())
    )


def _is_fixed_object(tensor_object: TensorObject) -> bool:
    components = tensor_object.components.values()
    is_more = (
        tensor_object.attributes or tensor_object.extra or any(one.extra for one in components)
    )
    return tensor_object.format == "dense" and not is_more
