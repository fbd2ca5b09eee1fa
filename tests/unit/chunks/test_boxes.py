from __future__ import annotations

import itertools

import numpy as np
import pytest

from ztensor.chunks.boxes import (
    Fill,
    c_strides,
    is_in_order,
    is_run,
    overlap,
    overlapping_pair,
    touching,
)

RANDOM = np.random.default_rng(3)


def _grid(shape: tuple[int, ...], counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    edges = [np.linspace(0, n, c + 1).astype(int) for n, c in zip(shape, counts, strict=True)]
    offsets, sizes = [], []
    for cell in itertools.product(*(range(c) for c in counts)):
        offsets.append([int(e[i]) for e, i in zip(edges, cell, strict=True)])
        sizes.append([int(e[i + 1] - e[i]) for e, i in zip(edges, cell, strict=True)])
    return np.array(offsets, np.int64), np.array(sizes, np.int64)


@pytest.mark.parametrize("shape", [(7,), (5, 9), (4, 3, 6)])
def test_a_grid_fills_its_shape_and_nothing_that_differs_does(shape: tuple[int, ...]) -> None:
    offsets, sizes = _grid(shape, tuple(min(3, n) for n in shape))
    assert Fill().fills(offsets, sizes, shape)
    assert not Fill().fills(offsets[1:], sizes[1:], shape)  # one is missing
    twice = np.concatenate((offsets, offsets[:1])), np.concatenate((sizes, sizes[:1]))
    assert not Fill().fills(*twice, shape)
    for row, axis in itertools.product(range(len(offsets)), range(len(shape))):
        moved = offsets.copy()
        moved[row, axis] += 1 if moved[row, axis] == 0 else -1
        assert not Fill().fills(moved, sizes, shape)


@pytest.mark.slow
def test_filling_is_what_counting_elements_says() -> None:
    for _ in range(300):
        shape = (int(RANDOM.integers(1, 4)), int(RANDOM.integers(1, 4)))
        count = int(RANDOM.integers(1, 5))
        offsets = np.stack([RANDOM.integers(0, n, count) for n in shape], axis=1)
        sizes = np.stack(
            [RANDOM.integers(0, n - offsets[:, i] + 1) for i, n in enumerate(shape)], axis=1
        )
        seen = np.zeros(shape, int)
        for start, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
            seen[start[0] : start[0] + size[0], start[1] : start[1] + size[1]] += 1
        assert Fill().fills(offsets, sizes, shape) == bool((seen == 1).all())
        assert (overlapping_pair(offsets, sizes) is not None) == bool((seen > 1).any())


def test_scalars_are_filled_by_one_box() -> None:
    none = np.zeros((1, 0), np.int64)
    assert Fill().fills(none, none, ())
    assert not Fill().fills(np.zeros((2, 0), np.int64), np.zeros((2, 0), np.int64), ())


def test_overlaps_are_those_of_sets() -> None:
    found = overlap((2, 0), (4, 5), (3, 2), (9, 2))
    assert found.source == (slice(1, 4), slice(2, 4))
    assert found.target == (slice(0, 3), slice(0, 2))
    assert overlap((0,), (2,), (2,), (2,)).is_empty
    offsets, sizes = _grid((8, 8), (4, 4))
    assert touching(offsets, sizes, (1, 1), (2, 1)).tolist() == [0, 4]


def test_strides_of_c_are_in_order_and_no_others() -> None:
    for shape in itertools.product((1, 2, 3), repeat=3):
        array = np.zeros(shape, np.int32)
        assert is_in_order(c_strides(shape, 4), shape, 4)
        for axes in itertools.permutations(range(3)):
            turned = array.transpose(axes)
            assert is_in_order(turned.strides, turned.shape, 4) is turned.flags.c_contiguous
    assert c_strides((), 4) == ()
    assert not is_in_order((8,), (3,), 4)


def test_a_part_is_a_run_where_its_elements_are_neighbours() -> None:
    shape = (2, 3, 2)
    numbers = np.arange(12).reshape(shape)
    cuts = [[slice(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in shape]
    for part in itertools.product(*cuts):
        flat = numbers[part].reshape(-1)
        assert is_run(part, shape) == bool((np.diff(flat) == 1).all()), part
