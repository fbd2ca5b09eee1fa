"""How components are stored: what callers ask for, checked once, as one value."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.spec.container.framing import Form
from ztensor.spec.digest import Algorithm, require_writable
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.zstd.codec import FASTEST_LEVEL, STRONGEST_LEVEL

_DEFAULT_LEVEL = 3


class Compression(NamedTuple):
    """How components are encoded.

    Attributes:
        encoding: a name of the table of encodings.
        level: how hard to try, where that means something.
    """

    encoding: str
    level: int = _DEFAULT_LEVEL

    @classmethod
    def asked(cls, how: bool | int | str) -> Compression | None:  # noqa: FBT001  # one argument
        """Return how a caller asked for components to be encoded; None for raw.

        Raises:
            ArgumentValueError: it is no level, and no encoding's name.
            ArgumentTypeError: it is neither a bool, a number nor text.
        """
        if how is True:
            return cls("zstd")
        if how in (False, "none", "raw"):  # and 0
            return None
        if isinstance(how, int) and FASTEST_LEVEL <= how <= STRONGEST_LEVEL:
            return cls("zstd", how)
        if isinstance(how, str):
            with contextlib.suppress(KeyError):  # a plugin is looked for, too
                if ENCODINGS[how].is_written:
                    return cls(how)
        written = (name for name, encoding in ENCODINGS.items() if encoding.is_written)
        names = ", ".join(repr(name) for name in written if name != "raw")
        raise (ArgumentValueError if isinstance(how, (int, str)) else ArgumentTypeError)(
            "unknown compression",
            expected=f"False, True, {names} or a zstd level up to {STRONGEST_LEVEL}",
            found=describe(how),
        )


class BlobOptions(NamedTuple):
    """How the components of an object are stored.

    Attributes:
        form: what blobs of the file are like.
        compression: how they are encoded; None for raw.
        algorithm: their digest; None for none.
        chunk_rows: rows in a frame of compressed bytes; None for as many as 64 KiB hold.
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
        """Return the options with what a caller asks for; None takes what these say.

        Raises:
            ArgumentValueError: there is no such compression, digest, alignment or number of rows.
            ArgumentTypeError: one is of another type.
        """
        form, how, algorithm, rows = self
        if alignment is not None:
            if type(alignment) is not int or alignment not in form.alignments:
                raise ArgumentValueError(
                    "blobs of a file of this version begin elsewhere",
                    expected=f"alignment of {' or '.join(map(str, form.alignments))}",
                    found=describe(alignment, 40),
                )
            form = form._replace(alignment=alignment)
        if compression is not None:
            how = Compression.asked(compression)
            how = how and how._replace(encoding=form.encodings.get(how.encoding, how.encoding))
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
