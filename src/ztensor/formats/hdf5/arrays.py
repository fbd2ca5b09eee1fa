"""The two arrays of entries of equal width: fixed and extensible."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.formats.hdf5.window import Fields, Window, malformed
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Run(NamedTuple):
    """Entries of an array that are stored contiguously.

    Attributes:
        first: the number of the first entry.
        width: bytes of an entry.
        body: the entries.
    """

    first: int
    width: int
    body: bytes | bytearray


class _Form(NamedTuple):
    """The format of an array's blocks.

    Attributes:
        width: bytes of an entry.
        page: entries of a page; longer blocks are divided into pages.
        prefix: bytes of a block before its entries.
    """

    width: int
    page: int
    prefix: int


def walk_fixed(window: Window, address: int, client: int, widths: Collection[int]) -> Iterator[Run]:
    """Yield the entries of a fixed array, as far as they were written.

    Args:
        window: the file.
        address: the address of the array's header.
        client: the number of the entries' kind.
        widths: the valid widths of such entries.

    Raises:
        FormatError: the array is damaged, or has other entries.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    stored_client, width, page_bits, count, place = window.fields(address, b"FAHD", "BB B LO")
    _require_entry(stored_client, width, client, widths)
    if not window.is_defined(place):
        return
    form = _Form(width, 1 << page_bits, 6 + window.offset_size)
    if count <= form.page:
        yield from _block(window, place, b"FADB", 0, count, form)
        return
    end = form.prefix + (-(-count // form.page) + 7) // 8
    data = window.block(place, b"FADB", end + 4)
    yield from _pages(
        window, _bits(window, data[form.prefix : end]), place + end + 4, 0, count, form
    )


def walk_extensible(
    window: Window, address: int, client: int, widths: Collection[int]
) -> Iterator[Run]:
    """Yield the entries of an extensible array, as far as they were written; see `walk_fixed`.

    Raises:
        FormatError: the array is damaged, or has other entries.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    stored_client, width, bits, inner, least, pointers, page_bits, place = window.fields(
        address, b"EAHD", f"BB 5B {6 * window.length_size}x O"
    )
    _require_entry(stored_client, width, client, widths)
    if not (_is_power(least) and _is_power(pointers) and least.bit_length() <= bits <= 64):
        raise malformed("an extensible array cannot be", None, (bits, least, pointers))
    if not window.is_defined(place):
        return
    supers = 2 + bits - least.bit_length()  # super blocks: two for each doubling of a block
    in_index = 2 * (pointers.bit_length() - 1)  # super blocks with addresses in the index block
    places = 2 * (pointers - 1) + max(supers - in_index, 0)
    prefix = 6 + window.offset_size
    middle = prefix + inner * width
    data = window.block(place, b"EAIB", middle + places * window.offset_size + 4)
    yield Run(0, width, data[prefix:middle])
    addresses = iter(Fields(window, data, middle).take(f"{places}O"))
    form = _Form(width, 1 << page_bits, prefix + (bits + 7) // 8)
    first = inner
    for number in range(supers):
        count, entries = 1 << number // 2, least << (number + 1) // 2
        if number >= in_index:
            below = next(addresses, window.undefined)
            if window.is_defined(below):
                yield from _super_block(window, below, first, count, entries, form)
            first += count * entries
            continue
        for below in itertools.islice(addresses, count):
            if window.is_defined(below):
                yield from _block(window, below, b"EADB", first, entries, form)
            first += entries


def _super_block(
    window: Window, address: int, first: int, count: int, entries: int, form: _Form
) -> Iterator[Run]:
    pages = 0 if entries <= form.page else entries // form.page
    start = form.prefix + count * ((pages + 7) // 8)
    data = window.block(address, b"EASB", start + count * window.offset_size + 4)
    window.budget.charge_steps(count)
    bits = _bits(window, data[form.prefix : start])
    for number, place in enumerate(Fields(window, data, start).take(f"{count}O")):
        at = first + number * entries
        if not window.is_defined(place):
            continue
        if not pages:
            yield from _block(window, place, b"EADB", at, entries, form)
            continue
        window.block(place, b"EADB", form.prefix + 4)
        # Each block has whole bytes allocated, but the bits are contiguous.
        written = bits[number * pages : (number + 1) * pages]
        yield from _pages(window, written, place + form.prefix + 4, at, entries, form)


def _block(
    window: Window, address: int, sign: bytes, first: int, count: int, form: _Form
) -> Iterator[Run]:
    """Yield the entries of a block without pages."""
    data = window.block(address, sign, form.prefix + count * form.width + 4)
    yield Run(first, form.width, data[form.prefix : -4])


def _pages(
    window: Window, is_written: Array, start: int, first: int, count: int, form: _Form
) -> Iterator[Run]:
    """Yield the entries of those consecutive pages that were written."""
    page, width = form.page, form.width
    for number in np.flatnonzero(is_written).tolist():
        entries = min(page, count - number * page)
        if entries <= 0:
            raise malformed("page beyond the end of an index", count, number * page)
        data = window.take(start + number * (page * width + 4), entries * width + 4)
        window.require_sum(data)
        yield Run(first + number * page, width, data[:-4])


def _bits(window: Window, bitmap: bytes | bytearray) -> Array:
    """Return a byte for each bit, the highest of a byte first."""
    window.budget.charge_bytes(16 * len(bitmap))
    return np.unpackbits(np.frombuffer(bitmap, np.uint8))


def _require_entry(stored_client: int, width: int, client: int, widths: Collection[int]) -> None:
    if stored_client != client or width not in widths:
        raise malformed(
            "an index has other entries", (client, list(widths)), (stored_client, width)
        )


def _is_power(number: int) -> bool:
    """Return whether a number is a power of two."""
    return number > 0 and not number & (number - 1)
