"""Write the canonical form of 2.x: the same tensors give the same bytes (2.1 section 6.3).

Objects are in the order of their names' bytes, components in the order of their roles; all are raw,
at multiples of 65536, with xxh3 digests. Equal bytes are stored once, so bytes are hashed before
they are written.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, NotRepresentableError, UsageError, describe
from ztensor.io.writing.blob import Blob, Pieces, as_of
from ztensor.io.writing.options import BlobOptions
from ztensor.spec.digest import ALGORITHMS

if TYPE_CHECKING:
    from ztensor.io.source.base import Sink
    from ztensor.spec.model.manifest import Component


class CanonicalBlobs:
    """The blobs of a canonical file: each content once.

    Args:
        version: the file's version.
        options: how its objects are stored.

    Raises:
        ArgumentValueError: the version has no canonical form, or an option contradicts it.
    """

    def __init__(self, version: str, options: BlobOptions) -> None:
        self._version = version
        self.require_options(options)
        self._options = BlobOptions(options.form)
        self._written: dict[str, Component] = {}

    def require_options(self, options: BlobOptions) -> None:
        """Raise if an option contradicts the canonical form.

        Raises:
            ArgumentValueError: it does.
        """
        form, algorithm = options.form, options.algorithm
        digest = "none" if algorithm is None else algorithm.name
        alignment = max(form.alignments)
        for is_right, expected, found in (
            (form.is_exact, "version 2.1", f"version {self._version}"),
            (options.compression is None, "no compression", "compression"),
            (digest == "xxh3", "the digest xxh3", digest),
            (form.alignment == alignment, f"alignment of {alignment}", str(form.alignment)),
        ):
            if not is_right:
                raise ArgumentValueError(
                    "a canonical file has one form", expected=expected, found=found
                )

    def require_next(self, name: str, last: str | None) -> None:
        """Raise if an object of that name cannot follow another one.

        Raises:
            UsageError: the name does not sort after the last one.
            NotRepresentableError: it is not in Unicode's normal form NFC.
        """
        if not unicodedata.is_normalized("NFC", name):
            raise NotRepresentableError(
                "names in a canonical file are in Unicode's normal form NFC",
                expected=describe(unicodedata.normalize("NFC", name)),
                found=describe(name),
                section="2.1 section 6.3",
            )
        if last is not None and name.encode() <= last.encode():
            raise UsageError(
                "a canonical file is written in the order of the names' bytes",
                expected=f"a name behind {describe(last)}",
                found=describe(name),
            )

    def write(self, sink: Sink, component: Component, pieces: Pieces) -> Component:
        """Write a component unless its bytes are there; return it with its offset and digest.

        Args:
            sink: the sink.
            component: the component.
            pieces: returns its decoded bytes each time it is called.
        """
        key = ALGORITHMS["sha256"].of(pieces())
        placed = self._written.get(key)
        if placed is None:
            blob = Blob(sink, self._options._replace(algorithm=ALGORITHMS["xxh3"]))
            for piece in pieces():
                blob.write(piece)
            placed = self._written[key] = blob.finish(component)
        return as_of(placed, component)
