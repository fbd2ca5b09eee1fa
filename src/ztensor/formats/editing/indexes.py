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
    folder, name = os.path.split(os.path.realpath(path))
    for index, document in _indexes(folder):
        homes, metadata = document.get("weight_map"), document.get("metadata")
        if not isinstance(homes, dict) or name not in homes.values():
            continue
        facts = metadata if isinstance(metadata, dict) else {}
        wrong = [
            *([] if are_names_kept else ["names"]),
            *([] if is_length_kept or "total_size" not in facts else ["total_size"]),
            *(["digests"] if name in (facts.get("digests") or ()) else []),
        ]
        if wrong:
            error = UsageError(
                "an index lists the file, and would be wrong after this change",
                file=path,
                found=f"{', '.join(wrong)} in {describe(index, 200)}",
            )
            error.hint = "`ztensor convert` makes one file of the index, which can be changed"
            raise error


def _indexes(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the indexes in a folder and their contents; other files are passed over."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".index.json"):
                continue
            with contextlib.suppress(OSError, ValueError, RecursionError):
                with open(os.path.join(folder, name), "rb") as file:
                    data = file.read(DEFAULT_LIMITS.index_bytes + 1)
                document = json.loads(data) if len(data) <= DEFAULT_LIMITS.index_bytes else None
                if isinstance(document, dict):
                    yield name, document
