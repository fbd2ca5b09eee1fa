from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from tests.corpus.foreign.make_gguf_grids import points_of, text_of
from ztensor.quantization.gguf_grids import GRIDS, points, words


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids_are_those_of_the_package(name: str) -> None:
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    assert np.array_equal(points(name), points_of(name))


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grids_are_sets_of_points(name: str) -> None:
    grid, found = GRIDS[name], points(name)
    assert len(found) == {"iq1_s": 2048, "iq2_xs": 512, "iq2_s": 1024, "iq3_s": 512}.get(name, 256)
    assert found.shape[1] == grid.width
    assert set(np.unique(found)) == set(grid.values)
    assert words(name).view(np.int8).tolist() == found.reshape(-1).tolist()


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_the_script_makes_the_table(name: str) -> None:
    texts = text_of(points(name)).encode(), GRIDS[name].members
    one, other = (zlib.decompress(base64.b85decode(text)) for text in texts)  # any zlib's
    assert one == other
