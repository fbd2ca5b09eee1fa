"""The bytes of a signature to the statement that was signed, and back; no I/O.

| layer | content |
| --- | --- |
| bundle | sigstore 0.3: `mediaType`, `verificationMaterial.publicKey.hint`, `dsseEnvelope` |
| envelope | DSSE: `payloadType`, `payload` (base64), one of `signatures` |
| statement | in-toto 1: `_type`, one `subject`, `predicateType`, `predicate` |
| predicate | OMS 1.0: `resources` (a file's name and digest), `serialization` (what was hashed) |

A resource may have `annotations`, which OMS leaves to its producers (OMS 1.0 section 5.2.1): here
`annotations.ztensor` is what `contents.py` says of a zTensor file.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import foreign_bytes
from ztensor.limits import Budget, Limits
from ztensor.signing.keys import Key, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEDIA = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
SINGLE = "."  # the name of the only resource of a file that is signed alone
# Not in names: NUL, the separator of Windows, and halves of characters, which no file can have.
_NEVER = re.compile("[\0\\\\\ud800-\udfff]")
_Kind = TypeVar("_Kind")


class SignatureError(FormatError):
    """A signature is malformed, is not of this key, or does not cover the files."""


class Resource(NamedTuple):
    """A file that is signed.

    Attributes:
        digest: SHA-256 of the whole file, hexadecimal.
        notes: `annotations.ztensor`; None if there is none.
    """

    digest: str
    notes: Mapping[str, Any] | None = None

    @property
    def part_count(self) -> int:
        """Return the number of components that are signed one by one."""
        count = (self.notes or {}).get("count")
        return count if isinstance(count, int) else 0


class Statement(NamedTuple):
    """What was signed.

    Attributes:
        name: name of the file or folder when it was signed; nothing depends on it.
        resources: paths in the folder to files; `SINGLE` for a file that is signed alone.
        ignored: paths in the folder that are not signed, with all that is in them.
        follows_links: whether links in the folder were followed.
    """

    name: str
    resources: Mapping[str, Resource]
    ignored: tuple[str, ...] = ()
    follows_links: bool = False


def emit(statement: Statement, key: Key) -> bytes:
    """Return the bytes of a signature.

    Args:
        statement: what is signed.
        key: a private key.
    """
    resources = []
    for name, resource in sorted(statement.resources.items()):
        entry: dict[str, Any] = {"name": name, "algorithm": "sha256", "digest": resource.digest}
        if resource.notes is not None:
            entry["annotations"] = {"ztensor": resource.notes}
        resources.append(entry)
    serialization: dict[str, Any] = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": statement.follows_links,
    }
    if statement.ignored:
        serialization["ignore_paths"] = sorted(statement.ignored)
    subject = {"name": statement.name, "digest": {"sha256": _root(resources)}}
    payload = json.dumps(
        {
            "_type": _STATEMENT,
            "subject": [subject],
            "predicateType": _PREDICATE,
            "predicate": {"serialization": serialization, "resources": resources},
        }
    ).encode()
    signature = base64.b64encode(key.sign(_encoded(payload))).decode()
    bundle = {
        "mediaType": _MEDIA,
        "verificationMaterial": {"publicKey": {"hint": key.hint}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": _PAYLOAD,
            "signatures": [{"sig": signature, "keyid": ""}],
        },
    }
    return json.dumps(bundle).encode()


def parse(data: bytes, key: Key, limits: Limits, name: str) -> Statement:
    """Return the statement of a signature, once the signature is verified.

    Args:
        data: the bytes of the signature.
        key: the public key that has to have signed it.
        limits: the caps in force.
        name: the signature's file, for messages.

    Raises:
        SignatureError: the bytes are malformed, or were not signed by this key.
        UnsupportedError: it is signed by other means than a key, or hashes in another way.
        LimitError: a safety cap is exceeded.
    """
    with foreign_bytes("the signature", name):
        budget = Budget(limits, len(data))
        bundle = _json(data, budget)
        _require(bundle, "mediaType", _MEDIA)
        _require_key(_field(bundle, "verificationMaterial", dict), key)
        envelope = _field(bundle, "dsseEnvelope", dict)
        _require(envelope, "payloadType", _PAYLOAD)
        signature = _only(envelope, "signatures")
        payload = _base64(envelope, "payload")
        if not key.has_signed(_encoded(payload), _base64(signature, "sig")):
            raise SignatureError(
                "the signature is not valid: this key did not sign this statement",
                reason=Reason.DIGEST_MISMATCH,
                expected=f"a signature of the key {key.fingerprint}",
            )
        return _statement(_json(payload, budget))


def _statement(fields: Any) -> Statement:
    _require(fields, "_type", _STATEMENT)
    _require(fields, "predicateType", _PREDICATE)
    subject, predicate = _only(fields, "subject"), _field(fields, "predicate", dict)
    how = _field(predicate, "serialization", dict)
    method, algorithm = _field(how, "method", str), _field(how, "hash_type", str)
    if (method, algorithm) != ("files", "sha256"):
        raise UnsupportedError(
            "the files are hashed in a way that this release does not know",
            reason=Reason.UNKNOWN_ENCODING,
            expected="'files', 'sha256'",
            found=f"{describe(method)}, {describe(algorithm)}",
        )
    entries = _field(predicate, "resources", list)
    resources = dict(map(_resource, entries))
    if len(resources) < max(1, len(entries)):
        raise _malformed(
            "the statement needs resources with different names",
            Reason.DUPLICATE_NAME if entries else Reason.FIELD_MISSING,
        )
    expected = _field(_field(subject, "digest", dict), "sha256", str)
    if expected != (found := _root(entries)):
        raise _malformed(
            "the subject's digest is not that of the resources",
            Reason.DIGEST_MISMATCH,
            expected=found,
            found=describe(expected),
        )
    ignored = how.get("ignore_paths", [])
    if not isinstance(ignored, list) or not all(isinstance(path, str) for path in ignored):
        raise _malformed("'ignore_paths' must be a list of paths", Reason.FIELD_TYPE)
    links = _field(how, "allow_symlinks", bool)
    return Statement(_field(subject, "name", str), resources, tuple(ignored), links)


def _resource(entry: Any) -> tuple[str, Resource]:
    name, digest = _field(entry, "name", str), _field(entry, "digest", str)
    steps = name.split("/")
    is_inside = name == SINGLE or {"", ".", ".."}.isdisjoint(steps)
    if not is_inside or _NEVER.search(name):
        raise _malformed(
            "a resource has no path inside the folder", Reason.FIELD_VALUE, found=describe(name)
        )
    _require(entry, "algorithm", "sha256")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise _malformed(
            "a resource's digest is malformed", Reason.DIGEST_MALFORMED, found=describe(digest)
        )
    annotations = entry.get("annotations")
    notes = annotations.get("ztensor") if isinstance(annotations, dict) else None
    return name, Resource(digest, notes if isinstance(notes, dict) else None)


def _require_key(material: Mapping[str, Any], key: Key) -> None:
    """Require material of a key; a hint, which older bundles lack, has to be of this key."""
    if "publicKey" not in material:
        raise UnsupportedError(
            "only signatures by a key are verified here, not those by certificates or sigstore",
            reason=Reason.UNKNOWN_TYPE,
            expected="'publicKey'",
            found=describe(", ".join(map(str, material)) or "nothing"),
        )
    hint = _field(material, "publicKey", dict).get("hint")
    if hint and hint != key.hint:
        raise SignatureError(
            "signed by another key",
            reason=Reason.DIGEST_MISMATCH,
            expected=key.fingerprint,
            found=f"SHA256:{hint}" if isinstance(hint, str) else describe(hint),
        )


def _encoded(payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    return b"DSSEv1 %d %b %d %b" % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload), payload)


def _root(resources: list[dict[str, Any]]) -> str:
    """Return the digest of all digests (OMS 1.0 section 6.5.1)."""
    whole = b"".join(bytes.fromhex(resource["digest"]) for resource in resources)
    return sha256_of([whole])


# --- Fields of JSON ---------------------------------------------------------------------------


def _json(data: bytes, budget: Budget) -> Any:
    budget.charge_bytes(2 * len(data))
    budget.charge_json(data)
    try:
        return json.loads(budget.text(data), object_pairs_hook=_unique)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _malformed(f"not JSON: {error}", Reason.FIELD_VALUE) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _malformed("a name occurs twice in one object", Reason.DUPLICATE_NAME)
    return fields


def _field(fields: Any, name: str, kind: type[_Kind]) -> _Kind:
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise _malformed(
            f"the field {name!r} is missing or has another type",
            Reason.FIELD_MISSING if value is None else Reason.FIELD_TYPE,
            expected=kind.__name__,
            found=describe(value),
        )
    return value


def _require(fields: Any, name: str, expected: str) -> None:
    found = _field(fields, name, str)
    if found != expected:
        raise _malformed(
            f"the field {name!r} has another value",
            Reason.FIELD_VALUE,
            expected=expected,
            found=describe(found),
        )


def _only(fields: Any, name: str) -> Any:
    entries = _field(fields, name, list)
    if len(entries) != 1:
        raise _malformed(
            f"the field {name!r} needs exactly one entry",
            Reason.FIELD_VALUE,
            found=str(len(entries)),
        )
    return entries[0]


def _base64(fields: Any, name: str) -> bytes:
    try:
        return base64.b64decode(_field(fields, name, str), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, SignatureError):
            raise
        raise _malformed(f"the field {name!r} is not base64", Reason.FIELD_VALUE) from error


def _malformed(message: str, reason: Reason, **facts: str) -> SignatureError:
    return SignatureError(message, reason=reason, **facts)
