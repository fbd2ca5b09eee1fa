"""A divided step as one state: all of it in one process, whoever wrote it, in whatever parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor.checkpoints.step import ATTRIBUTE, told_by_root
from ztensor.divided.opened import DividedObjects
from ztensor.divided.root import PATHS, values_as
from ztensor.errors import FormatError, Reason, describe
from ztensor.frameworks import FRAMEWORKS, tree_adapter
from ztensor.opening import open as open_files
from ztensor.reading.loading import load_all, load_files
from ztensor.reading.names import keeps
from ztensor.states import AS_SAVED, holds_tree, read_tree
from ztensor.tree.columns import malformed
from ztensor.tree.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# In the place of what was not asked for.
_LEFT_OUT = object()


def read_divided(
    path: Any,
    step: int,
    into: Any,
    only: str | Iterable[str] | None,
    types: Iterable[type],
    threads: int | None,
) -> tuple[dict[str, float], Any]:
    """Return the metrics and the whole state of a divided step, in memory of its own.

    Args:
        path: the folder of the step, or its URL.
        step: what its name says.
        into: as for `ztensor.CheckpointManager.restore`, like all that follow.
        only: patterns of names.
        types: classes of records.
        threads: how many read.

    Raises:
        ZTensorError: what `restore` raises.
    """
    with open_files(path) as reader:
        objects = reader.objects.parts()[0]
        if not isinstance(objects, DividedObjects):
            raise FormatError(
                "the file is the root of no divided checkpoint",
                reason=Reason.FIELD_VALUE,
                file=reader.name,
            )
        root = objects.root
        metrics = told_by_root(root.values, step, reader.name)
        if holds_tree(reader):
            tree = read_tree(reader, AS_SAVED, only=only, types=types, copy=True, threads=threads)
            return metrics, tree if into is None else fit(into, tree)
        known = FRAMEWORKS.get(root.writer)
        framework = root.writer if known is not None and known.trees else None
        keep = None if only is None else keeps([only] if isinstance(only, str) else only)
        values = dict(values_as(root, framework, types))
        paths = values.pop(PATHS, None)
        if not isinstance(paths, dict) or ATTRIBUTE not in paths:
            values.pop(ATTRIBUTE, None)
        found = _tensors(objects, framework, keep, threads)
        found.update((name, one) for name, one in values.items() if keep is None or keep(name))
        if framework == "jax" and into is not None:
            from ztensor.jax.sharded import laid_over

            return metrics, laid_over(into, found)
        tree = found if paths is None else nested(found, paths, reader.name)
        return metrics, tree if into is None else fit(into, tree)


def _tensors(
    objects: DividedObjects,
    framework: str | None,
    keep: Callable[[str], bool] | None,
    threads: int | None,
) -> dict[str, Any]:
    chosen: Any = objects if keep is None else objects.select(filter(keep, objects.names))
    arrays: dict[str, Any] = load_files(chosen, load_all, copy=True, threads=threads)
    if framework is None:
        return arrays
    home = tree_adapter(framework)
    return {name: home.tree_leaf(array) for name, array in arrays.items()}


def nested(found: Mapping[str, Any], paths: Any, file: str) -> Any:
    """Return values by name as the nested state they were.

    Args:
        found: values by name; those that were not asked for are missing.
        paths: name to the keys of dicts, as text, and the places in lists that lead to it.
        file: for messages.

    Returns:
        A dict. What is missing is missing in it, and None in lists, as for `ztensor.load_tree`.

    Raises:
        FormatError: two paths cannot be those of one state, or a list has gaps.
    """
    if not isinstance(paths, dict):
        raise malformed("the places of values are malformed", describe(paths, 40)).locate(file=file)
    whole: dict[Any, Any] = {}
    inner: list[tuple[dict[Any, Any], Any]] = []  # each container by its parent, parents first
    for name in [*paths, *(one for one in found if one not in paths)]:
        path = paths.get(name, (name,))
        if type(path) is not tuple or not path or not all(type(k) in (str, int) for k in path):
            raise _wrong(name, path, file)
        here = whole
        for key in path[:-1]:
            if key not in here:
                here[key] = _Inner()
                inner.append((here, key))
            here = here[key]
            if type(here) is not _Inner:
                raise _wrong(name, path, file)
        if path[-1] in here:
            raise _wrong(name, path, file)
        here[path[-1]] = found.get(name, _LEFT_OUT)
    for parent, key in reversed(inner):
        parent[key] = _closed(parent[key], file)
    result = _closed(whole, file)
    return {} if result is _LEFT_OUT else result


class _Inner(dict[Any, Any]):
    """A dict or a list that is not whole yet; no value of a state is one."""


def _closed(inner: dict[Any, Any], file: str) -> Any:
    """Return a container as it was: one of places is a list."""
    if any(type(key) is int for key in inner):
        if sorted(inner, key=str) != sorted(range(len(inner)), key=str):
            raise malformed("a list of the state has gaps", describe(list(inner), 80)).locate(
                file=file
            )
        items = [inner[place] for place in range(len(inner))]
        if items and all(item is _LEFT_OUT for item in items):
            return _LEFT_OUT
        return [None if item is _LEFT_OUT else item for item in items]
    kept = {key: value for key, value in inner.items() if value is not _LEFT_OUT}
    return kept if kept or not inner else _LEFT_OUT


def _wrong(name: str, path: object, file: str) -> Exception:
    error = malformed("a value has no place in the state", describe(path, 80))
    return error.locate(file=file, object_name=name)
