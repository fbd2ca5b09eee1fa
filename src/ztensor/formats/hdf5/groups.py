"""The links of a group, from each of the three ways of storing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.formats.hdf5.header import Header, Kind
from ztensor.formats.hdf5.heaps import LocalHeap, dense
from ztensor.formats.hdf5.messages import Link, parse_link
from ztensor.formats.hdf5.trees import walk_tree_1
from ztensor.formats.hdf5.window import Fields, Window, malformed

if TYPE_CHECKING:
    from collections.abc import Iterator


_COST = 300  # bytes of memory of a link without its name
_SOFT = 2  # the kind of a soft link's entry
# Records: a hash or an order, and an identifier of the heap.
_RECORDS = {5: (11, slice(4, 11)), 6: (15, slice(8, 15))}


def read_links(window: Window, header: Header) -> list[Link]:
    """Return the links of a group in the order of creation if it is stored, else by name.

    Raises:
        FormatError: the group is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    table = header.of(Kind.SYMBOL_TABLE)
    links = []
    for link in _links(window, header) if table is None else _symbols(window, table.body):
        window.budget.charge_bytes(_COST + len(link.name))
        window.budget.charge_steps(1)
        links.append(link)
    return sorted(links, key=lambda link: (link.order, link.name))


def _links(window: Window, header: Header) -> Iterator[Link]:
    """Yield the links in a group's header and in its heap."""
    info = header.of(Kind.LINK_INFO)
    if info is None:
        raise malformed("not a group")
    for message in header.messages:
        if message.kind == Kind.LINK:
            yield parse_link(Fields(window, message.body))
    heap, tree = Fields(window, info.body, 10 if info.body[1] & 1 else 2).take("OO")
    if window.is_defined(heap):
        for _, body in dense(window, heap, tree, _RECORDS):
            yield parse_link(Fields(window, body))


def _symbols(window: Window, body: bytes) -> Iterator[Link]:
    """Yield the links of an old group: a tree of symbol tables."""
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
