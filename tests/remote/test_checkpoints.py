"""Checkpoint folders of other writers behind URLs: the root is named, its files lie beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.remote.range_server import RangeServer

pytest.importorskip("obstore")

FOLDER = Path(__file__).parents[1] / "corpus" / "foreign" / "accept" / "dcp" / "stock"


def test_a_checkpoint_is_read_by_the_url_of_its_root(tmp_path: Path) -> None:
    with RangeServer(FOLDER) as server, ztensor.open(FOLDER) as here:
        url = f"{server.url}/.metadata"
        with ztensor.open(url) as there:
            assert set(there) == set(here)
            for name in here:
                assert np.asarray(there[name]).tobytes() == np.asarray(here[name]).tobytes()
            assert np.array_equal(there.get_slice("rows")[1:3], here.get_slice("rows")[1:3])
            assert there.attributes == here.attributes
            assert there.verify().outcome == "ok"
        ztensor.convert(url, tmp_path / "whole.safetensors")
        with ztensor.open(tmp_path / "whole.safetensors") as whole:
            assert np.array_equal(whole["rows"], here["rows"])
