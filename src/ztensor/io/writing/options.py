"""How components are stored: the callers' options, checked once, as one value."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.spec.container.framing import RESERVED, Form
from ztensor.spec.digest import Algorithm, require_writable
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.zstd.codec import FASTEST_LEVEL, STRONGEST_LEVEL
from ztensor.spec.model.manifest import TensorObject

_DEFAULT_LEVEL = 3
# Words of callers, and the encodings.
_CALLED = {"planes": "pyztensor.planes/1"}


class Compression(NamedTuple):
    """How components are encoded.

    Attributes:
        encoding: a name of the table of encodings.
        level: the compression level, if the encoding has levels.
    """

    encoding: str
    level: int = _DEFAULT_LEVEL

    @classmethod
    def asked(cls, how: bool | int | str) -> Compression | None:  # noqa: FBT001  # one argument
        """Return the encoding for a caller's `compression` argument; None means raw.

        Raises:
            ArgumentValueError: it is neither a level nor the name of an encoding.
            ArgumentTypeError: it is neither a bool, a number nor text.
        """
        if how is True:
            return cls("zstd")
        if how in (False, "none", "raw"):  # and 0
            return None
        if isinstance(how, int) and FASTEST_LEVEL <= how <= STRONGEST_LEVEL:
            return cls("zstd", how)
        if isinstance(how, str):
            how = _CALLED.get(how, how)
            with contextlib.suppress(KeyError):  # plugins are looked up, too
                if ENCODINGS[how].is_written:
                    return cls(how)
        written = (
            name for name, encoding in ENCODINGS.usable(plugins=False) if encoding.is_written
        )
        called = {name: word for word, name in _CALLED.items()}
        names = ", ".join(repr(called.get(name, name)) for name in written)
        raise (ArgumentValueError if isinstance(how, (int, str)) else ArgumentTypeError)(
            "unknown compression",
            expected=f"{names} or a zstd level up to {STRONGEST_LEVEL}",
            found=describe(how),
        )


class BlobOptions(NamedTuple):
    """How the components of an object are stored.

    Attributes:
        form: the rules of the version for blobs, with the file's alignment.
        compression: their encoding; None means raw.
        algorithm: their digest algorithm; None means no digest.
        chunk_rows: rows in a frame of compressed bytes; None means as many as fit in 64 KiB.
    """

    form: Form
    compression: Compression | None = None
    algorithm: Algorithm | None = None
    chunk_rows: int | None = None

    def asked(
        self,
        compression: bool | int | str | None = None,  # noqa: FBT001  # as callers have it
        checksum: str | bool | None = None,  # noqa: FBT001
        chunk_rows: int | None = None,
        alignment: int | None = None,
    ) -> BlobOptions:
        """Return the options changed by a caller's arguments; None keeps an option.

        Raises:
            ArgumentValueError: a compression, digest, alignment or number of rows is unknown.
            ArgumentTypeError: one has another type.
        """
        form, how, algorithm, rows = self
        if alignment is not None:
            if type(alignment) is not int or alignment not in form.alignments:
                raise ArgumentValueError(
                    "the version has no such alignment",
                    expected=f"alignment of {' or '.join(map(str, form.alignments))}",
                    found=describe(alignment, 40),
                )
            form = form._replace(alignment=alignment)
        if compression is not None:
            how = Compression.asked(compression)
            how = how and how._replace(encoding=form.encodings.get(how.encoding, how.encoding))
            if how is not None and how.encoding == "raw":
                raise ArgumentValueError(
                    "the version has no such compression",
                    expected="version 1.2 or 2.1, or another compression",
                    found=describe(compression),
                )
        if checksum is not None:
            algorithm = require_writable(checksum, form.checksums)
        if chunk_rows is not None:
            if type(chunk_rows) is not int or chunk_rows < 1:
                raise (ArgumentValueError if type(chunk_rows) is int else ArgumentTypeError)(
                    "chunk_rows is the number of rows in a frame",
                    expected="an integer from 1 on, or None",
                    found=describe(chunk_rows, 40),
                )
            rows = chunk_rows
        return BlobOptions(form, how, algorithm, rows)

    def of(self, plan: TensorObject) -> BlobOptions:
        """Return the options for an object: raw if only others can have the encoding."""
        if self.compression is None or self.compression.encoding not in self.form.of_dense:
            return self
        is_only_data = plan.format == "dense" and plan.components.keys() == {"data"}
        if is_only_data and RESERVED.isdisjoint(plan.attributes or ()):
            return self
        return self._replace(compression=None)
