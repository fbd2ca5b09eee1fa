"""The canonical form of 2.x, written: the same tensors give the same bytes (2.1 section 6.3).

Objects come in the order of their names' bytes, parts in that of theirs, raw, at multiples of
65536, each with its xxh3; equal bytes lie there once, whatever they are of. So bytes are hashed
before they are written.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, NotRepresentableError, UsageError, describe
from ztensor.io.writing.blob import Blob, BlobOptions, as_of
from ztensor.spec.digest import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.io.source.base import Sink
    from ztensor.spec.model.manifest import Component
    from ztensor.spec.model.rules import Form

    Pieces = Callable[[], Iterable[memoryview]]


class CanonicalBlobs:
    """The blobs of a canonical file: each content once.

    Args:
        form: what blobs of the file are like.
    """

    def __init__(self, form: Form) -> None:
        self._options = BlobOptions(form, None, None, None)
        self._written: dict[str, Component] = {}
        self._last: bytes | None = None

    def require_next(self, name: str) -> None:
        """Raise where an object of that name cannot be the next.

        Raises:
            UsageError: another came before it whose name is behind.
        """
        place = name.encode()
        if self._last is not None and place <= self._last:
            raise UsageError(
                "a canonical file is written in the order of the names' bytes",
                expected=f"a name behind {describe(self._last.decode())}",
                found=describe(name),
            )

    def note(self, name: str) -> None:
        """Note that an object is being written."""
        self._last = name.encode()

    def write(self, sink: Sink, name: str, component: Component, pieces: Pieces) -> Component:
        """Write a component, or find its bytes written; return it with its place and digest.

        Args:
            sink: where it goes.
            name: the object's.
            component: what it is.
            pieces: gives its decoded bytes, twice.
        """
        self.note(name)
        xxh3 = ALGORITHMS["xxh3"]
        hasher, whole = xxh3.hasher(), ALGORITHMS["sha256"].hasher()
        for piece in pieces():
            hasher.update(piece)
            whole.update(piece)
        key = whole.hexdigest()
        placed = self._written.get(key)
        if placed is None:
            blob = Blob(sink, self._options)
            for piece in pieces():
                blob.write(piece)
            digest = xxh3.spell(hasher.hexdigest())
            placed = blob.finish(component)._replace(digest=digest)
            self._written[key] = placed
        return as_of(placed, component)


def require_nfc(name: str) -> None:
    """Raise where a name is not in the normal form that canonical files have.

    Raises:
        NotRepresentableError: it is not.
    """
    if not unicodedata.is_normalized("NFC", name):
        raise NotRepresentableError(
            "names in a canonical file are in Unicode's normal form NFC",
            expected=describe(unicodedata.normalize("NFC", name)),
            found=describe(name),
            section="2.1 section 6.3",
        )


def require_canonical(version: str, options: BlobOptions) -> None:
    """Raise where a file that is asked for is none that can be canonical.

    Raises:
        ArgumentValueError: the version has no canonical form, or an option is of another one.
    """
    form, algorithm = options.form, options.algorithm
    wrong = [
        (not form.is_exact, "version 2.1", f"version {version}"),
        (options.compression is not None, "no compression", "compression"),
        (
            algorithm is not ALGORITHMS["xxh3"],
            "the digest xxh3",
            "none" if algorithm is None else algorithm.name,
        ),
        (
            form.is_exact and form.alignment != max(form.alignments),
            f"alignment of {max(form.alignments)}",
            f"{form.alignment}",
        ),
    ]
    for is_wrong, expected, found in wrong:
        if is_wrong:
            raise ArgumentValueError(
                "a canonical file has one form", expected=expected, found=found
            )
