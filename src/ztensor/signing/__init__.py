"""Signatures of files, as OpenSSF Model Signing has them, and tensors read under a signature.

A signature is a small file beside the model. It has the digests of whole files, which other
programs check, and digests of a zTensor file's manifest and components: `open` checks the signature
and the manifest, and each tensor when it is read. `keys.py`: keys, and the only use of
`cryptography`. `bundle.py`: the bytes of a signature to a statement, and back. `contents.py`: the
notes of a statement on a zTensor file. `files.py`: `sign`, `verify` and `open`.
"""

from __future__ import annotations

from ztensor.signing.bundle import SignatureError
from ztensor.signing.files import SignatureReport, SignedReader, open, sign, verify

__all__ = ["SignatureError", "SignatureReport", "SignedReader", "open", "sign", "verify"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
