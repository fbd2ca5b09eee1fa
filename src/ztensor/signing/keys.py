"""Keys of the elliptic curves P-256, P-384 and P-521, from PEM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, MissingDependencyError
from ztensor.ext import ALGORITHMS, source_of

_MOST_PEM_BYTES = 64 << 10
# Curves to the hashes that are signed (OMS 1.0, algorithm registry).
_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}


def sha256_of(chunks: Iterable[bytes | memoryview]) -> str:
    """Return the hexadecimal SHA-256 of chunks in order."""
    return ALGORITHMS["sha256"].of(chunks).removeprefix("sha256:")


class Key(NamedTuple):
    """A private or a public key.

    Attributes:
        key: the key of `cryptography`.
        hint: hexadecimal SHA-256 of the public key in PEM, by which a bundle names it.
    """

    key: Any
    hint: str

    @property
    def fingerprint(self) -> str:
        """Return the text that people compare."""
        return f"SHA256:{self.hint}"

    @property
    def public(self) -> Key:
        """Return the public key of a private one."""
        return Key(self.key.public_key(), self.hint)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of a private key over `data`, in DER."""
        signature: bytes = self.key.sign(data, _algorithm(self.key))
        return signature

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether a signature over `data` is of this key; the key is public."""
        from cryptography.exceptions import InvalidSignature

        with contextlib.suppress(InvalidSignature):
            self.key.verify(signature, data, _algorithm(self.key))
            return True
        return False


def private_key(given: Any, password: str | bytes | None = None) -> Key:
    """Return the private key of a PEM file, or of the bytes of one.

    Raises:
        ArgumentValueError: it is not such a key, or the password is missing or wrong.
        MissingDependencyError: `cryptography` is not installed.
        SourceError: the file cannot be read.
    """
    key = _loaded(given, "private", password.encode() if isinstance(password, str) else password)
    return Key(key, _hint(key.public_key()))


def public_key(given: Any) -> Key:
    """Return the public key of a PEM file, or of the bytes of one.

    Raises:
        ArgumentValueError: it is not such a key.
        MissingDependencyError: `cryptography` is not installed.
        SourceError: the file cannot be read.
    """
    key = _loaded(given, "public")
    return Key(key, _hint(key))


def _loaded(given: Any, kind: str, *password: bytes | None) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        message = "signatures need cryptography"
        raise MissingDependencyError(message, install="cryptography") from error
    if isinstance(given, str) and "-----BEGIN" in given:  # a message would show the key
        raise ArgumentTypeError("a key is the path of a PEM file, or its bytes, not its text")
    with contextlib.closing(source_of(given, mapped=False)) as source:
        pem = bytes(source.read(0, min(source.size, _MOST_PEM_BYTES)))
    expected = f"a {kind} key in PEM, of the curve P-256, P-384 or P-521"
    try:
        key = getattr(serialization, f"load_pem_{kind}_key")(pem, *password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        message = f"the key cannot be used: {str(error).partition('. ')[0]}"
        raise ArgumentValueError(message, file=source.name, expected=expected) from error
    if getattr(getattr(key, "curve", None), "name", None) not in _HASHES:
        raise ArgumentValueError("the key cannot be used", file=source.name, expected=expected)
    return key


def _algorithm(key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA(getattr(hashes, _HASHES[key.curve.name])())


def _hint(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return sha256_of([public.public_bytes(serialization.Encoding.PEM, form)])
