"""Describe the tensors and values of a checkpoint as the tree of the nested state that was saved.

So `load_tree` of a folder returns the state, and a conversion into one file keeps the values.
Values of frameworks are not decoded on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztensor.distributed.root import BOXES, PATHS, SAVE_ID, STEP, Root, values_kept
from ztensor.ext import FRAMEWORKS, Lock, foreign_bytes
from ztensor.training import tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class RootAttributes(Mapping[str, object]):
    """The attributes of a checkpoint, its tree among them; made on first access.

    Args:
        root: the root.
        arrays: object names of the arrays in the values, by their names in the root.
    """

    def __init__(self, root: Root, arrays: Mapping[str, str]) -> None:
        self._root = root
        self._arrays = arrays
        self._found: Mapping[str, object] | None = None
        self._lock = Lock()

    def __getitem__(self, key: str) -> object:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, object]:
        with self._lock:
            if self._found is None:
                with foreign_bytes("the root"):
                    self._found = attributes_of(self._root, self._arrays)
            return self._found


def named_apart(arrays: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return unique object names for the arrays in values, by their names in the root."""
    names = dict.fromkeys(taken)
    named: dict[str, str] = {}
    tries: dict[str, int] = {}
    for array in arrays:
        named[array] = name = tree.unique(array, names, tries)
        names[name] = None
    return named


def attributes_of(root: Root, arrays: Mapping[str, str]) -> dict[str, object]:
    """Return the attributes of a single file with the same tensors and values.

    If a tree was saved in parts, the values are the attributes, its tree among them. The step of a
    run is an attribute in either case, as in a single file.

    Raises:
        FormatError: the values of the root are damaged.
        LimitError: a safety cap is exceeded.
    """
    values = dict(values_kept(root, arrays))
    if tree.has_tree(values):
        return values
    paths = values.pop(PATHS, None)
    paths = paths if isinstance(paths, dict) else {}
    for name in (BOXES, SAVE_ID):
        values.pop(name, None)
    is_step = STEP not in paths and _is_of_a_step(values.get(STEP))
    attributes: dict[str, object] = {STEP: values.pop(STEP)} if is_step else {}
    framework = root.writer if FRAMEWORKS.own(root.writer) else "numpy"
    flat: dict[str, Any] = {name: tree.Leaf(None, name, framework, name) for name in root.names}
    flat.update(values)
    return {**attributes, **tree.encode(nested(flat, paths)).attribute}


def _is_of_a_step(value: object) -> bool:
    """Return whether a value is the step and metrics that a `CheckpointManager` saves."""
    if not isinstance(value, dict) or not value.keys() <= {"version", "step", "metrics"}:
        return False
    metrics = value.get("metrics", {})
    return (
        type(value.get("version")) is int
        and type(value.get("step")) is int
        and isinstance(metrics, dict)
        and all(type(one) is str and type(at) is float for one, at in metrics.items())
    )


def nested(flat: Mapping[str, Any], paths: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return values nested in dicts and lists.

    Args:
        flat: the values by name.
        paths: keys that lead to values in the nested state, by name, as torch's planner has them. A
            value without a path, or with one through another value, stays under its name.
    """
    whole = _Inner()
    inners: list[tuple[Any, object, _Inner]] = []
    left = []
    for name in (*(name for name in paths if name in flat), *(n for n in flat if n not in paths)):
        path = _keys(paths.get(name))
        if not path or not _put(whole, path, flat[name], inners):
            left.append(name)
    for name in left:
        whole[tree.unique(name, whole, {})] = flat[name]
    for outer, key, inner in reversed(inners):  # inner containers come after outer ones
        outer[key] = _closed(inner)
    return dict(whole)


class _Inner(dict[Any, Any]):
    """A container that is being filled, distinct from a dict that is a value."""


def _keys(path: object) -> Sequence[Any]:
    if isinstance(path, (tuple, list)) and all(type(key) in (str, int) for key in path):
        return path
    return ()


def _put(whole: _Inner, path: Sequence[Any], value: object, inners: list[Any]) -> bool:
    """Put a value at its path; return False if the path is taken."""
    target = whole
    for key in path[:-1]:
        found = target.get(key)
        if found is None and key not in target:
            found = target[key] = _Inner()
            inners.append((target, key, found))
        if not isinstance(found, _Inner):
            return False
        target = found
    if path[-1] in target:
        return False
    target[path[-1]] = value
    return True


def _closed(inner: _Inner) -> Any:
    """Return a list if the keys are 0, 1, 2, ..., else a dict."""
    keys: Any = list(inner)
    if keys and all(type(key) is int for key in keys) and set(keys) == set(range(len(keys))):
        return [inner[at] for at in range(len(keys))]
    return dict(inner)
