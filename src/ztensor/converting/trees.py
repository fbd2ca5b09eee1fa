"""Nested states for targets without them: plain values become attributes, others are lost."""

from __future__ import annotations

from ztensor import Reader
from ztensor.converting.report import Loss
from ztensor.converting.source import over
from ztensor.errors import NotRepresentableError, describe
from ztensor.ext import EMITTERS
from ztensor.training.stored_tree import stored_tree

_PLAIN = frozenset([bool, int, float, str, bytes, type(None)])


def without_tree(reader: Reader, version: str | None) -> tuple[Reader, list[Loss]]:
    """Return a reader with the plain values of its tree as attributes, named by their paths.

    Args:
        reader: the source.
        version: the version of a new `.zt` file; None for another format.

    Returns:
        The reader itself if it has no tree, or the new file can hold it; and the lost values.

    Raises:
        ZTensorError: the tree is damaged.
    """
    tree = stored_tree(reader)
    if tree is None or (version is not None and _holds(version, tree.attribute)):
        return reader, []
    attributes, lost = tree.attributes, []
    for path, value in tree.values().plain.items():
        if type(value) in _PLAIN or (type(value) is list and value):
            attributes.setdefault(path, value)
        else:
            kind = type(value).__qualname__
            sentence = f"left out: value {describe(path)}, a {describe(kind)}"
            lost.append(Loss(None, sentence, "value of a tree"))
    objects = reader.objects.changed_by(lambda part, _: part.changed(attributes=attributes))
    return over(reader, objects), lost


def _holds(version: str, attribute: dict[str, object]) -> bool:
    try:
        EMITTERS.named(version).require_attributes(attribute)
    except NotRepresentableError:
        return False
    return True
