"""Keys of the elliptic curves P-256, P-384 and P-521, from PEM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ztensor.errors import ArgumentValueError, LimitError, MissingDependencyError, Reason
from ztensor.ext import ALGORITHMS, source_of

_MOST_PEM_BYTES = 64 << 10
# Curve to the hash that is signed (OMS 1.0, algorithm registry).
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

    def sign(self, data: bytes) -> bytes:
        """Return the signature of a private key over `data`, in DER."""
        signature: bytes = self.key.sign(data, _algorithm(self.key.curve.name))
        return signature

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether a signature over `data` is of this key; the key is public."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, data, _algorithm(self.key.curve.name))
        except InvalidSignature:
            return False
        return True


def private_key(given: Any, password: str | bytes | None = None) -> Key:
    """Return the private key of a PEM file, or of the bytes of one.

    Raises:
        ArgumentValueError: it is no such key, has another curve, or the password is missing or
            wrong.
        MissingDependencyError: `cryptography` is not installed.
        SourceError: the file cannot be read.
    """
    secret = password.encode() if isinstance(password, str) else password
    name, pem = _read(given)
    key = _loaded("load_pem_private_key", name, pem, secret)
    return Key(key, _hint(key.public_key()))


def public_key(given: Any) -> Key:
    """Return the public key of a PEM file, or of the bytes of one.

    Raises:
        ArgumentValueError: it is no such key, or has another curve.
        MissingDependencyError: `cryptography` is not installed.
        SourceError: the file cannot be read.
    """
    name, pem = _read(given)
    key = _loaded("load_pem_public_key", name, pem)
    return Key(key, _hint(key))


def _algorithm(curve: str) -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA(getattr(hashes, _HASHES[curve])())


def _read(given: Any) -> tuple[str, bytes]:
    source = source_of(given, mapped=False)
    try:
        if source.size > _MOST_PEM_BYTES:
            raise LimitError(
                "too long for a key in PEM",
                reason=Reason.LIMIT_MANIFEST,
                file=source.name,
                expected=f"at most {_MOST_PEM_BYTES} bytes",
                found=str(source.size),
            )
        return source.name, bytes(source.read(0, source.size))
    finally:
        source.close()


def _loaded(loader: str, name: str, pem: bytes, *password: bytes | None) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise MissingDependencyError("signatures need cryptography", install="cryptography") from (
            error
        )
    kind = loader.split("_")[2]
    try:
        key = getattr(serialization, loader)(pem, *password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        found = "PRIVATE" if b"PRIVATE KEY-----" in pem else "PUBLIC"
        refused = ArgumentValueError(
            f"cannot be loaded as a {kind} key in PEM: {str(error).splitlines()[0]}", file=name
        )
        if found != kind.upper() and b"KEY-----" in pem:
            refused = ArgumentValueError(f"expected a {kind} key", file=name)
            refused.hint = f"the file has a {found.lower()} key"
        raise refused from error
    curve = getattr(getattr(key, "curve", None), "name", type(key).__name__)
    if curve not in _HASHES:
        raise ArgumentValueError(
            "signatures need a key of an elliptic curve",
            file=name,
            expected="P-256, P-384 or P-521",
            found=curve,
        )
    return key


def _hint(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return sha256_of([pem])
