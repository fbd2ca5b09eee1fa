"""The two kinds of B-trees, read from the first record to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.formats.hdf5.window import Window, malformed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


_DEEPEST = 64  # levels: nodes have two branches at least


def walk_tree_1(window: Window, address: int, kind: int, key_length: int) -> Iterator[bytes]:
    """Yield the leaves of a version 1 tree: keys and addresses in turn.

    Args:
        window: the file.
        address: the address of the root.
        kind: 0 for the links of a group, 1 for chunks.
        key_length: bytes of a key. A leaf's last key, which has no address, is left out.

    Raises:
        FormatError: the tree is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    head = window.record("4xBBH OO")
    pair = window.record(f"{key_length}x O")
    waiting: list[tuple[int, int | None]] = [(address, None)]
    while waiting:
        place, expected = waiting.pop()
        stored_kind, level, count, *_ = head.unpack(window.read(place, head.size))
        data = window.block(place, b"TREE", head.size + count * pair.size, has_sum=False)
        if stored_kind != kind or level > _DEEPEST or (expected is not None and level != expected):
            raise malformed("a node of another tree", (kind, expected), (stored_kind, level))
        body = bytes(data[head.size :])
        window.budget.charge_steps(count)
        if level:
            below = [child for (child,) in pair.iter_unpack(body)]
            waiting += [(child, level - 1) for child in reversed(below)]
        else:
            yield body


class Records(NamedTuple):
    """Consecutive records of a version 2 tree, with their kind and the width of each."""

    kind: int
    width: int
    body: bytes


def walk_tree_2(
    window: Window, address: int, known: Mapping[int, Collection[int]]
) -> Iterator[Records]:
    """Yield the records of a version 2 tree, node by node.

    Args:
        window: the file.
        address: the address of the tree's header.
        known: the valid kinds of records, with their widths.

    Raises:
        FormatError: the tree is damaged, or has other records.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    kind, node, width, depth, _, _, root, count, total = window.fields(
        address, b"BTHD", "B IHH BB OHL"
    )
    if not width or depth > _DEEPEST:
        raise malformed("a tree has no such nodes", None, (kind, width, node, depth))
    if width not in known.get(kind, ()):
        raise malformed("a tree has other records", list(known), (kind, width))
    if not window.is_defined(root) or not total:
        return
    # The width of a node's pointers depends on the maximal number of records below it.
    most = below = max(node - 10, 0) // width
    count_width = _width_of(most)
    pointers = [0]  # bytes of a pointer at each level
    for level in range(1, depth + 1):
        pointer = window.offset_size + count_width + (_width_of(below) if level > 1 else 0)
        pointers.append(pointer)
        records = max((node - 10 - pointer) // (width + pointer), 0)
        below = (records + 1) * below + records
    waiting = [(root, count, depth)]
    while waiting:
        place, records, level = waiting.pop()
        pointer = pointers[level]
        length = 6 + records * width + ((records + 1) * pointer if level else 0) + 4
        if length > node:
            raise malformed("a node has more records than fit", node, length)
        data = window.block(place, b"BTIN" if level else b"BTLF", length)
        if data[5] != kind:
            raise malformed("a node of another tree", kind, data[5])
        window.budget.charge_steps(records + 1)
        end = 6 + records * width
        yield Records(kind, width, bytes(data[6:end]))
        if level:
            below_places = []
            for at in range(end, length - 4, pointer):
                middle = at + window.offset_size
                child = int.from_bytes(data[at:middle], "little")
                child_count = int.from_bytes(data[middle : middle + count_width], "little")
                below_places.append((child, child_count, level - 1))
            waiting += reversed(below_places)


def _width_of(most: int) -> int:
    """Return the bytes that numbers up to `most` need."""
    return max(most.bit_length() + 7, 8) // 8
