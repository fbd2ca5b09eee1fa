"""The trees of HDF5: nodes at every level, and headers at the edges of what they may say."""

from __future__ import annotations

import struct

import pytest

from tests.unit.foreign.hdf5.parts import NODE_BYTES, leaf_2, summed, tree_2, window_of
from ztensor.errors import FormatError
from ztensor.foreign.hdf5.trees import walk_tree_1, walk_tree_2


def node_1(kind: int, level: int, *pairs: tuple[bytes, int]) -> bytes:
    """Return a node of a version 1 tree whose keys are eight bytes."""
    head = struct.pack("<4sBBHQQ", b"TREE", kind, level, len(pairs), 0, 0)
    return head + b"".join(struct.pack("<8sQ", *pair) for pair in pairs) + bytes(8)


def test_leaves_come_in_order() -> None:
    parts = {
        0: node_1(1, 2, (b"a", 1000), (b"c", 2000)),
        1000: node_1(1, 1, (b"a", 3000), (b"b", 4000)),
        2000: node_1(1, 1, (b"c", 5000)),
        **{place: node_1(1, 0, (b"%d" % place, place)) for place in (3000, 4000, 5000)},
    }
    found = [struct.unpack("<8sQ", leaf)[1] for leaf in walk_tree_1(window_of(parts), 0, 1, 8)]
    assert found == [3000, 4000, 5000]


@pytest.mark.parametrize(("level", "is_right"), [(0, True), (64, True), (65, False), (255, False)])
def test_levels_of_the_first_kind_of_tree(level: int, is_right: bool) -> None:
    window = window_of({0: node_1(0, level)})
    if is_right:
        assert list(walk_tree_1(window, 0, 0, 8)) == ([b""] if level == 0 else [])
    else:
        with pytest.raises(FormatError, match="does not belong to its tree"):
            list(walk_tree_1(window, 0, 0, 8))


@pytest.mark.parametrize(("kind", "level"), [(0, 1), (1, 0), (1, 2)])
def test_a_node_is_of_its_trees_kind_and_of_the_level_below(kind: int, level: int) -> None:
    """The one above is of kind 1 and on level 2."""
    window = window_of({0: node_1(1, 2, (b"a", 1000)), 1000: node_1(kind, level)})
    with pytest.raises(FormatError, match="does not belong to its tree"):
        list(walk_tree_1(window, 0, 1, 8))


@pytest.mark.parametrize(
    ("width", "depth", "is_right"),
    [(1, 0, True), (1, 64, True), (1, 65, False), (0, 0, False), (65535, 0, True)],
)
def test_a_tree_without_a_record(width: int, depth: int, is_right: bool) -> None:
    """Either it has no root, or the root is said to hold nothing."""
    for fields in ({}, {"root": 0, "total": 0}):
        window = window_of({0: tree_2(5, width, depth=depth, **fields)})
        if is_right:
            assert list(walk_tree_2(window, 0)) == []
        else:
            with pytest.raises(FormatError, match="a tree has no such nodes"):
                list(walk_tree_2(window, 0))


def test_a_node_holds_as_many_records_as_fit() -> None:
    width = (NODE_BYTES - 10) // 2
    for more in (0, 1):
        window = window_of(
            {
                0: tree_2(5, width + more, 1000, count=2),
                1000: leaf_2(5, bytes(2 * (width + more))),
            }
        )
        if more:
            with pytest.raises(FormatError, match="more records than fit"):
                list(walk_tree_2(window, 0))
        else:
            ((kind, found, body),) = walk_tree_2(window, 0)
            assert (kind, found, len(body)) == (5, width, 2 * width)


def test_records_of_all_levels() -> None:
    """A root of two nodes with two leaves each: a record lies between any two of those below."""

    def inner(records: list[int], below: list[tuple[int, int, int]], *, is_root: bool) -> bytes:
        body = b"".join(struct.pack("<Q", record) for record in records)
        for place, count, total in below:  # so wide as 510 records, and all below, need
            body += struct.pack("<QH", place, count) + (struct.pack("<I", total)[:3] * is_root)
        return summed(struct.pack("<4sBB", b"BTIN", 0, 5) + body)

    leaves = {
        place: leaf_2(5, struct.pack("<2Q", place, place + 1))
        for place in range(10000, 14000, 1000)
    }
    places = list(leaves)
    parts = {
        0: tree_2(5, 8, 1000, depth=2, count=1, total=11),
        1000: inner([11999], [(2000, 1, 5), (3000, 1, 5)], is_root=True),
        2000: inner([10999], [(place, 2, 2) for place in places[:2]], is_root=False),
        3000: inner([12999], [(place, 2, 2) for place in places[2:]], is_root=False),
        **leaves,
    }
    found = []
    for _, _, body in walk_tree_2(window_of(parts), 0):
        found += [record for (record,) in struct.iter_unpack("<Q", body)]
    expected = [11999, 10999, 12999, *(place + more for place in places for more in (0, 1))]
    assert sorted(found) == sorted(expected)


def test_a_node_of_another_tree_is_refused() -> None:
    window = window_of({0: tree_2(5, 8, 1000, count=1), 1000: leaf_2(6, bytes(8))})
    with pytest.raises(FormatError, match="does not belong to its tree"):
        list(walk_tree_2(window, 0))
