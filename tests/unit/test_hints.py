"""A name of another library that is looked for here leads to the right call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.hints import HINTS as OF_THE_CORE
from ztensor.numpy import save, save_file
from ztensor.training.checkpoints.hints import HINTS as OF_A_MANAGER

HINTS = {**OF_THE_CORE, "CheckpointManager": OF_A_MANAGER}

CLASSES: dict[str, Any] = {
    "ObjectReader": ztensor.Reader,
    "Writer": ztensor.Writer,
    "CheckpointManager": ztensor.CheckpointManager,
}


def one_of(kind: str, tmp_path: Path) -> Any:
    if kind == "ztensor":
        return ztensor
    if kind == "ObjectReader":
        return ztensor.open(save({"w": np.ones(2)}))
    if kind == "Writer":
        return ztensor.Writer(tmp_path / "m.zt")
    return ztensor.CheckpointManager(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in HINTS.items() for name in names]
)
def test_a_name_of_elsewhere_leads_to_the_right_call(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(one_of(kind, tmp_path), name)
    assert HINTS[kind][name] in str(caught.value)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_functions_that_hints_name_exist(kind: str) -> None:
    found = CLASSES[kind]
    for hint in set(HINTS[kind].values()):
        called = re.findall(r"(?:(ztensor|Writer|reader)\.)?\b([a-zA-Z_]+)\(", hint)
        for owner, name in called:
            home = {"ztensor": ztensor, "Writer": ztensor.Writer}.get(owner, found)
            assert hasattr(home, name) or name == "dict", hint


@pytest.mark.parametrize("kind", HINTS)
def test_any_other_name_is_missing_as_ever(kind: str, tmp_path: Path) -> None:
    found = one_of(kind, tmp_path)
    assert not hasattr(found, "nothing_like_it")
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing_like_it'$"):
        found.nothing_like_it  # noqa: B018


# --- Counts ---------------------------------------------------------------------------------

_NOUNS = "chunks|components|files|findings|names|objects|problems|shards|steps|tensors|things"


def test_counts_of_one_are_singular(tmp_path: Path) -> None:
    save_file({"w": np.ones(2)}, tmp_path / "m.zt")
    with ztensor.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, {"w": np.ones(2)})
    with ztensor.Writer(tmp_path / "n.zt") as writer:
        writer.write("w", np.ones(2))
        texts = [repr(writer)]
    reader, folder = ztensor.open(tmp_path / "m.zt"), ztensor.open([tmp_path / "m.zt"])
    tree = ztensor.open_tree(tmp_path / "run" / "step-00000001.zt")
    shown: list[Any] = [
        reader,
        folder,
        tree,
        manager,
        reader.metadata("w"),
        ztensor.examine(reader),
    ]
    texts += [repr(one) for one in shown]
    texts += [one._repr_html_() for one in shown]
    for text in texts:
        assert not re.search(rf"\b1 ({_NOUNS}|values|parameters|digests)\b", text), text
    assert "1 object in 1 file" in repr(folder)
