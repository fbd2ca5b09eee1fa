"""The links of a group, in each of the three ways in which files keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.formats.hdf5.header import Header, Kind
from ztensor.formats.hdf5.heaps import LocalHeap, dense
from ztensor.formats.hdf5.messages import Link, parse_link
from ztensor.formats.hdf5.trees import walk_tree_1
from ztensor.formats.hdf5.window import Fields, Window, malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_COST = 300  # bytes of memory a link takes beside its name
_SOFT = 2  # what the entry of a soft link keeps
# A hash or an order, and an identifier of the heap.
_RECORDS = {5: (11, slice(4, 11)), 6: (15, slice(8, 15))}


class Group(NamedTuple):
    """Where the links of a group are; many groups are held at a time.

    Attributes:
        table: the message of a table of symbols, or None.
        links: those in the header.
        dense: where a heap of links is, and the tree that lists them, or None.
        keeps_order: the links have the order in which they were made.
    """

    table: bytes | None = None
    links: tuple[Link, ...] = ()
    dense: tuple[int, int] | None = None
    keeps_order: bool = False


def group_of(window: Window, header: Header) -> Group:
    """Return what the header of a group says.

    Raises:
        FormatError: it is damaged.
        LimitError: the budget is used up.
    """
    table, info = header.of(Kind.SYMBOL_TABLE), header.of(Kind.LINK_INFO)
    if table is not None:
        return Group(table.body)
    if info is None:
        raise malformed("this is no group")
    links = [
        parse_link(Fields(window, message.body))
        for message in header.messages
        if message.kind == Kind.LINK
    ]
    keeps_order = bool(info.body[1] & 1)
    heap, tree = Fields(window, info.body, 10 if keeps_order else 2).take("OO")
    place = (heap, tree) if window.is_defined(heap) else None
    return Group(None, tuple(_charged(window, links)), place, keeps_order)


def links_of(window: Window, group: Group) -> list[Link]:
    """Return the links of a group, by name, or in the order of their making where it was kept.

    Raises:
        FormatError: the group is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    links = list(group.links)
    if group.table is not None:
        links += _charged(window, _symbols(window, group.table))
    if group.dense is not None:
        bodies = (body for _, body in dense(window, *group.dense, _RECORDS))
        links += _charged(window, (parse_link(Fields(window, body)) for body in bodies))
    links.sort(key=(lambda link: link.order) if group.keeps_order else (lambda link: link.name))
    return links


def _charged(window: Window, links: Iterable[Link]) -> Iterator[Link]:
    for link in links:
        window.budget.charge_bytes(_COST + len(link.name))
        window.budget.charge_steps(1)
        yield link


def _symbols(window: Window, body: bytes) -> Iterator[Link]:
    """Yield the links of a group as the first files had them: a tree of tables of symbols."""
    tree, heap_address = window.record("OO").unpack_from(body)
    heap = LocalHeap(window, heap_address)
    pair, head, symbol = map(window.record, ("L O", "6xH", "OO I4x I12x"))
    for leaf in walk_tree_1(window, tree, 0, window.length_size):
        for _, place in pair.iter_unpack(leaf):
            (count,) = head.unpack(window.read(place, head.size))
            data = window.block(place, b"SNOD", head.size + count * symbol.size, has_sum=False)
            for name, address, kind, target in symbol.iter_unpack(memoryview(data)[head.size :]):
                if kind == _SOFT:
                    yield Link(heap.text(name), None, heap.text(target))
                else:
                    yield Link(heap.text(name), address)
