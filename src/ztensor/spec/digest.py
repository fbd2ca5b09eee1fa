"""Digest texts to hashers: `crc32c:0x0A1B2C3D`, `sha256:<hex>`, and xxh3 if its library is there.

A digest covers the stored bytes (1.2 section 1, Component). It is written as the released libraries
write it: crc32c with `0x` and eight upper-case digits, sha256 in lower case. It is read in every
spelling that `algorithm:hex` allows: with and without `0x`, either case. A digest of an unknown
algorithm is reported as unchecked; malformed digits of a known algorithm are an error.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ztensor.arguments import require_choice
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    MissingDependencyError,
    Problem,
    Reason,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Buffer

SECTION = "1.2 section 1, Component, digest"

# Not compiled at import: a read without verification parses no digest.
_TEXT = r"([A-Za-z0-9][A-Za-z0-9_.+-]*):(?:0[xX])?([0-9a-fA-F]+)\Z"
_FREE_TEXT = r"([A-Za-z0-9][A-Za-z0-9_.+-]*):([!-~]+)\Z"
_STRICT_TEXT = r"([a-z0-9]+):([0-9a-f]+)\Z"


class Hasher(Protocol):
    """A running digest, as `hashlib` has it."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Add more bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, in lower-case hexadecimal."""
        ...


class _Crc:
    """A running CRC of 32 bits.

    Args:
        function: continues the CRC over a C-contiguous buffer.
        before: eight digits: the CRC of the preceding bytes. The result begins with them.
    """

    def __init__(self, function: Callable[[Buffer, int], int], before: str = "") -> None:
        self._function, self._before = function, before
        self._value = int(before or "0", 16)

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._before}{self._value:08x}"


@functools.cache
def crc32c() -> Callable[[Buffer, int], int]:
    """Return the function that continues a CRC-32C (0 at first) over a C-contiguous buffer."""
    function: Callable[[Buffer, int], int]
    try:
        function = _extension("crc32c", "_crc32c").crc32c
    except (ImportError, AttributeError):  # a build without that extension module
        from crc32c import crc32c as function
    return function


def _extension(package: str, name: str) -> Any:
    """Load a module of a package without its `__init__`: crc32c's imports 75 modules.

    Raises:
        ImportError: there is no such package, or no such module in it.
    """
    find = importlib.machinery.PathFinder.find_spec
    parent = find(package)
    spec = parent and find(f"{package}.{name}", parent.submodule_search_locations)
    if not spec or not spec.loader:
        raise ModuleNotFoundError(f"no module {name} in a package {package}", name=package)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sha256() -> Hasher:
    import hashlib  # loads OpenSSL, which takes as long as all other imports of opening a file

    return hashlib.sha256()


def _xxhash() -> Any:
    try:
        import xxhash
    except ImportError as error:
        raise MissingDependencyError(
            "xxh3 digests, and all files of 2.x, need the xxhash library", install="xxhash"
        ) from error
    return xxhash


def xxh3(data: Buffer) -> int:
    """Return the XXH3-64 of a C-contiguous buffer.

    Raises:
        MissingDependencyError: the library is not installed.
    """
    digest: int = _xxhash().xxh3_64_intdigest(data)
    return digest


class Algorithm(NamedTuple):
    """One digest algorithm.

    Attributes:
        name: the manifest's word.
        digits: how many hexadecimal digits its digest has.
        hasher: makes a fresh hasher.
        prefix: text that released writers put before the digits.
        upper: released writers use upper-case digits.
        is_written: files of 1.x may be written with it.
    """

    name: str
    digits: int
    hasher: Callable[[], Hasher]
    prefix: str = ""
    upper: bool = False
    is_written: bool = True

    def of(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Return the manifest's text for the digest of `chunks` in order."""
        hasher = self.hasher()
        for chunk in chunks:
            hasher.update(chunk)
        return self.spell(hasher.hexdigest())

    def spell(self, hexdigest: str) -> str:
        """Return the manifest's text for a digest."""
        return f"{self.name}:{self.prefix}{hexdigest.upper() if self.upper else hexdigest}"

    def whole(self) -> Callable[[Buffer], str]:
        """Return a function from one C-contiguous buffer to the text of its digest."""
        if self.name == "crc32c":
            crc = crc32c()
            return lambda data: f"crc32c:0x{crc(data, 0):08X}"
        if self.name == "xxh3":
            function = _xxhash().xxh3_64_intdigest
            return lambda data: f"xxh3:{function(data):016x}"
        return lambda data: self.of((memoryview(data).cast("B"),))


ALGORITHMS: dict[str, Algorithm] = {
    "crc32c": Algorithm("crc32c", 8, lambda: _Crc(crc32c()), prefix="0x", upper=True),
    "sha256": Algorithm("sha256", 64, _sha256),
    # The digest of 2.x. Read in 1.x too, although no text of 1.x names it (1.2 gives sha256, the
    # releases crc32c).
    "xxh3": Algorithm("xxh3", 16, lambda: _xxhash().xxh3_64(), is_written=False),
}

# Not a word of zTensor files; the readers of zip archives use it. Sixteen digits: the CRC-32 of the
# member's bytes before a component, then the CRC-32 of the whole member.
_ZIP_CRC32 = "zip-crc32"


def writable() -> list[str]:
    """Return the names of the digests for new files of 1.x, the default first."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.is_written]


class Digest(NamedTuple):
    """A digest as the manifest gives it.

    Attributes:
        algorithm: the word before the colon, lower case.
        expected: the digits, lower case, without `0x`.
        any_width: any number of digits is well-formed, and matches no bytes if it is not the
            algorithm's (2.x); otherwise such a digest is of an unknown algorithm.
    """

    algorithm: str
    expected: str
    any_width: bool = False

    @property
    def known(self) -> Algorithm | None:
        """Return the algorithm; None if this release cannot compute it.

        No text of 1.x fixes the width of an xxh3: one of another width is of an unknown algorithm.
        """
        if self.algorithm == _ZIP_CRC32 and len(self.expected) == 16:
            return Algorithm(_ZIP_CRC32, 16, lambda: _Crc(zlib.crc32, self.expected[:8]))
        known = ALGORITHMS.get(self.algorithm)
        if known is None or self.any_width:
            return known
        return known if len(self.expected) == known.digits else None


class Sum(NamedTuple):
    """A checksum of another format over a byte range that is not exactly one component.

    Attributes:
        offset: first byte of the range, in the file.
        length: bytes of the range, as stored.
        check: reads the range; raises `DigestMismatchError` if it does not match.
    """

    offset: int
    length: int
    check: Callable[[], None]


def parse_digest(text: str, *, strict: bool = False) -> Digest:
    """Parse a digest text (1.2 section 1, Component; 2.1 section 3.4).

    Args:
        text: the manifest's text.
        strict: apply the rule of 2.x: lower case, and hexadecimal digits only.

    Raises:
        FormatError: the text is not `algorithm:hex`, or has the wrong number of digits.
    """
    if strict:
        match = re.match(_STRICT_TEXT, text)
        if match:
            return Digest(match[1], match[2], any_width=True)
        expected = "'algorithm:hex' in lower case, such as 'xxh3:0123456789abcdef'"
    elif match := re.match(_TEXT, text):
        digest = Digest(match[1].lower(), match[2].lower())
        if digest.known is not None or digest.algorithm not in writable():
            return digest
        digits = ALGORITHMS[digest.algorithm].digits
        expected = f"{digits} hexadecimal digits after {digest.algorithm + ':'!r}"
    else:
        # An unknown algorithm may spell its value as it likes; a known one may not.
        free = re.match(_FREE_TEXT, text)
        if free and free[1].lower() not in ALGORITHMS:
            return Digest(free[1].lower(), free[2])
        expected = "'algorithm:hex', such as 'crc32c:0x1234ABCD'"
    raise FormatError(
        "the digest is malformed",
        reason=Reason.DIGEST_MALFORMED,
        expected=expected,
        found=describe(text),
        section="2.1 section 3.4" if strict else SECTION,
    )


def check_digest(text: str, *path: str | int, strict: bool = False) -> list[Problem]:
    """Return the problem of a digest text that cannot be parsed; an empty list otherwise.

    Args:
        text: the manifest's text.
        path: steps from the manifest's root to the text.
        strict: apply the rule of 2.x.
    """
    try:
        parse_digest(text, strict=strict)
    except FormatError as error:
        sentence = f"expected {error.expected}, found {error.found}"
        return [Problem(Reason.DIGEST_MALFORMED, sentence, path, error.section)]
    return []


def require_writable(
    checksum: str | bool | None,  # noqa: FBT001  # one argument
    known: Sequence[str],
) -> Algorithm | None:
    """Return the algorithm for a caller's `checksum` option; None if no digest is wanted.

    Args:
        checksum: a name; True for the version's default.
        known: names that the written version allows, the default first; empty for 1.x.

    Raises:
        ArgumentValueError: the version has no such algorithm.
    """
    if checksum is None or checksum is False or checksum == "none":
        return None
    known = known or writable()
    name = known[0] if checksum is True else checksum
    require_choice("checksum of this version", name, (*known, "none"))
    return ALGORITHMS[name]


def require_match(digest: Digest, actual_hexdigest: str) -> None:
    """Check the digest of the stored bytes against the manifest's.

    Raises:
        DigestMismatchError: they differ; the bytes were changed after they were written.
    """
    if actual_hexdigest.lower() != digest.expected:
        raise DigestMismatchError(
            f"the stored bytes do not match their {digest.algorithm} digest",
            algorithm=digest.algorithm,
            expected=digest.expected,
            found=actual_hexdigest.lower(),
            actual=actual_hexdigest.lower(),
            section=None if digest.algorithm == _ZIP_CRC32 else SECTION,
        )
