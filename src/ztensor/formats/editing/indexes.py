"""Indexes of models in several files, which an edit of one file would make wrong."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ztensor.errors import UsageError, describe
from ztensor.formats.editing.header import Header, Item
from ztensor.limits import DEFAULT_LIMITS

_SPLITS = "split.count"  # of GGUF


def require_whole_model(path: str, header: Header, items: Mapping[str, Item]) -> None:
    """Raise if a file is one of several, and the others or an index would be wrong after an edit.

    Args:
        path: the file.
        header: its old header.
        items: its new tensors.

    Raises:
        UsageError: they would be wrong.
    """
    splits = header.attributes.get(_SPLITS, 1)
    if splits != 1 and len(header.objects) != len(items):
        raise UsageError(
            "every file of a split model has the number of tensors of all; merge them first",
            file=path,
            found=f"{_SPLITS} {describe(splits)}",
        )
    before = sum(tensor.components["data"].length for tensor in header.objects.values())
    is_length_kept = before == sum(item.length for item in items.values())
    are_names_kept = header.objects.keys() == items.keys()
    for place in {os.path.abspath(path), os.path.realpath(path)}:
        for index, facts in _indexes_of(place):
            is_whole = is_length_kept or "total_size" not in facts
            if are_names_kept and is_whole and "digests" not in facts:
                continue
            error = UsageError(
                "an index lists the file, and would be wrong after this change",
                file=path,
                found=describe(index, 200),
            )
            error.hint = "`ztensor convert` makes one file of the index, which can be changed"
            raise error


def _indexes_of(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the indexes beside a file that list it, each with its `metadata`."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        for index in sorted(each for each in os.listdir(folder) if each.endswith(".index.json")):
            with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
                with open(os.path.join(folder, index), "rb") as file:
                    data = file.read(DEFAULT_LIMITS.index_bytes)
                if name.encode() not in data and b"\\u" not in data:
                    continue
                document = json.loads(data)
                homes, facts = map(document.get, ("weight_map", "metadata"))
                if name in homes.values():
                    yield index, facts if isinstance(facts, dict) else {}
