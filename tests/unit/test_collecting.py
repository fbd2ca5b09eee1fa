"""The collector of cycles: out while many values are made, back afterwards, whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.collecting import no_collection
from ztensor.numpy import save_file


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_out_within_and_back_behind() -> None:
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_brings_it_back() -> None:
    with pytest.raises(ValueError, match="x"), no_collection():
        raise ValueError("x")
    assert gc.isenabled()


def test_where_it_is_off_it_stays_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()


def _calls(folder: Path) -> dict[str, Callable[[], object]]:
    tensors = {f"t{number}": np.full(3, number, np.float32) for number in range(3)}
    save_file(tensors, folder / "m.zt")
    ztensor.save_tree(tensors, folder / "t.zt")
    reader = ztensor.open(folder / "m.zt")
    return {
        "save_tree": lambda: ztensor.save_tree(tensors, folder / "again.zt"),
        "load_tree": lambda: ztensor.load_tree(folder / "t.zt"),
        "metadata of several": lambda: reader.metadata(list(reader)),
    }


@pytest.mark.parametrize("name", ["save_tree", "load_tree", "metadata of several"])
def test_what_makes_many_values_keeps_it_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = _calls(tmp_path)[name]
    disabled: list[int] = []
    disable = gc.disable

    def noted() -> None:
        disabled.append(1)
        disable()

    monkeypatch.setattr(gc, "disable", noted)
    call()
    assert disabled
    assert gc.isenabled()


def test_tensors_of_torch_are_made_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from ztensor.torch import load_file, loading
    from ztensor.torch.values import view_in_torch

    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "m.zt")
    seen = []

    def noted(array: np.ndarray[Any, Any]) -> Any:
        seen.append(gc.isenabled())
        return view_in_torch(array)

    monkeypatch.setattr(loading, "view_in_torch", noted)
    load_file(tmp_path / "m.zt")
    assert seen == [False]
    assert gc.isenabled()
