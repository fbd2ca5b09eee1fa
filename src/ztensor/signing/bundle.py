"""The bytes of a signature to the statement that was signed, and back; no I/O.

| layer | content |
| --- | --- |
| bundle | sigstore 0.3: `mediaType`, `verificationMaterial.publicKey.hint`, `dsseEnvelope` |
| envelope | DSSE: `payloadType`, `payload` (base64), one of `signatures` |
| statement | in-toto 1: `_type`, one `subject`, `predicateType`, `predicate` |
| predicate | OMS 1.0: `resources` (name and digest of each file), `serialization` (their choice) |

A resource may have `annotations`, which OMS leaves to its producers (OMS 1.0 section 5.2.1): here
`annotations.ztensor` describes a zTensor file, see `contents.py`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import foreign_bytes
from ztensor.limits import Budget, Limits
from ztensor.signing.keys import Key, sha256_of

BUNDLE = b"application/vnd.dev.sigstore.bundle"  # in each, of any version
_MEDIA = f"{BUNDLE.decode()}.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_FILES = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
SINGLE = "."  # the name of the only resource of a file that is signed alone
# Not in paths: steps that leave the folder, NUL, Windows' separator, and halves of characters.
_NO_PATH = re.compile("(^|/)[.]{0,2}(/|$)|[\0\\\\\ud800-\udfff]")
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
    """The content of a signature.

    Attributes:
        name: name of the file or folder when it was signed; nothing depends on it.
        resources: paths in the folder to files; `SINGLE` for a file that is signed alone.
        ignored: paths in the folder that are not signed, with all that is in them.
    """

    name: str
    resources: Mapping[str, Resource]
    ignored: tuple[str, ...] = ()


def require(
    is_right: object, message: str, reason: Reason = Reason.FIELD_VALUE, **facts: str | None
) -> None:
    """Raise a `SignatureError` unless something is true."""
    if not is_right:
        raise SignatureError(message, reason=reason, **facts)


def emit(statement: Statement, key: Key) -> bytes:
    """Return the bytes of a signature by a private key."""
    resources = []
    for name, resource in sorted(statement.resources.items()):
        entry: dict[str, Any] = {"name": name, "algorithm": "sha256", "digest": resource.digest}
        if resource.notes is not None:
            entry["annotations"] = {"ztensor": resource.notes}
        resources.append(entry)
    how: dict[str, Any] = {**_FILES}
    if statement.ignored:
        how["ignore_paths"] = sorted(statement.ignored)
    subject = {"name": statement.name, "digest": {"sha256": _root(resources)}}
    predicate = {"serialization": how, "resources": resources}
    fields = {"_type": _STATEMENT, "subject": [subject], "predicateType": _PREDICATE}
    payload = json.dumps({**fields, "predicate": predicate}).encode()
    signature = {"sig": _text(key.sign(_signed(payload))), "keyid": ""}
    envelope = {"payload": _text(payload), "payloadType": _PAYLOAD, "signatures": [signature]}
    material = {"publicKey": {"hint": key.hint}, "tlogEntries": []}
    bundle = {"mediaType": _MEDIA, "verificationMaterial": material, "dsseEnvelope": envelope}
    return json.dumps(bundle).encode()


def parse(data: bytes, key: Key, limits: Limits, name: str) -> Statement:
    """Return the statement of a signature, once the signature is verified.

    Args:
        data: the bytes of the signature.
        key: the public key that must have signed it.
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
        _same(bundle, "mediaType", _MEDIA)
        material = _field(bundle, "verificationMaterial", dict)
        if "publicKey" not in material:
            raise UnsupportedError(
                "only signatures by a key are verified, not by a certificate or an identity",
                reason=Reason.UNKNOWN_TYPE,
                found=describe(", ".join(material)),
            )
        hint = _field(material, "publicKey", dict).get("hint")  # older bundles have none
        is_other = hint and hint != key.hint
        facts = {"expected": key.fingerprint, "found": f"SHA256:{describe(hint)}"}
        require(not is_other, "signed by another key", Reason.DIGEST_MISMATCH, **facts)
        envelope = _field(bundle, "dsseEnvelope", dict)
        _same(envelope, "payloadType", _PAYLOAD)
        payload = _bytes(envelope, "payload")
        is_valid = key.has_signed(_signed(payload), _bytes(_only(envelope, "signatures"), "sig"))
        message = "the signature is not valid: this key did not sign this statement"
        require(is_valid, message, Reason.DIGEST_MISMATCH, expected=key.fingerprint)
        return _statement(_json(payload, budget))


def _statement(fields: Any) -> Statement:
    _same(fields, "_type", _STATEMENT)
    _same(fields, "predicateType", _PREDICATE)
    subject, predicate = _only(fields, "subject"), _field(fields, "predicate", dict)
    how = _field(predicate, "serialization", dict)
    if any(how.get(field) != expected for field, expected in _FILES.items()):
        raise UnsupportedError(
            "the files are hashed in a way that this release does not know",
            reason=Reason.UNKNOWN_ENCODING,
            expected="whole files, by sha256, and no links",
            found=describe(how),
        )
    entries = _field(predicate, "resources", list)
    resources = dict(map(_resource, entries))
    is_list = 0 < len(resources) == len(entries)
    require(is_list, "the statement needs resources of different names", Reason.DUPLICATE_NAME)
    expected, root = _field(_field(subject, "digest", dict), "sha256", str), _root(entries)
    message = "the subject's digest is not the digest of the resources"
    facts = {"expected": root, "found": describe(expected)}
    require(expected == root, message, Reason.DIGEST_MISMATCH, **facts)
    ignored = _field({"ignore_paths": [], **how}, "ignore_paths", list)
    are_paths = all(isinstance(path, str) for path in ignored)
    require(are_paths, "'ignore_paths' must be a list of paths", Reason.FIELD_TYPE)
    return Statement(_field(subject, "name", str), resources, tuple(ignored))


def is_path(name: str) -> bool:
    """Return whether a name is a path inside the folder that a signature may have."""
    return not _NO_PATH.search(name)


def _resource(entry: Any) -> tuple[str, Resource]:
    name, digest = _field(entry, "name", str), _field(entry, "digest", str)
    require(
        name == SINGLE or is_path(name),
        "a resource has no path inside the folder",
        found=describe(name),
    )
    _same(entry, "algorithm", "sha256")
    is_digest = re.fullmatch("[0-9a-f]{64}", digest)
    require(is_digest, "malformed digest of a resource", Reason.DIGEST_MALFORMED, found=name)
    annotations = entry.get("annotations")
    notes = annotations.get("ztensor") if isinstance(annotations, dict) else None
    return name, Resource(digest, notes if isinstance(notes, dict) else None)


def _signed(payload: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    return b"DSSEv1 %d %b %d %b" % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload), payload)


def _root(resources: list[dict[str, Any]]) -> str:
    """Return the digest of all digests (OMS 1.0 section 6.5.1)."""
    return sha256_of(bytes.fromhex(resource["digest"]) for resource in resources)


# --- Fields of JSON ---------------------------------------------------------------------------


def _json(data: bytes, budget: Budget) -> Any:
    budget.charge_bytes(2 * len(data))
    budget.charge_json(data)
    try:
        return json.loads(budget.text(data), object_pairs_hook=_unique)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SignatureError(f"not JSON: {error}", reason=Reason.FIELD_VALUE) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    require(len(fields) == len(pairs), "a name occurs twice in an object", Reason.DUPLICATE_NAME)
    return fields


def _field(fields: Any, name: str, kind: type[_Kind]) -> _Kind:
    value = fields.get(name) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        message = f"the field {name!r} is missing or has another type"
        facts = {"expected": kind.__name__, "found": describe(value)}
        raise SignatureError(message, reason=Reason.FIELD_TYPE, **facts)
    return value


def _same(fields: Any, name: str, expected: str) -> None:
    found = _field(fields, name, str)
    message = f"the field {name!r} has another value"
    require(found == expected, message, expected=expected, found=describe(found))


def _only(fields: Any, name: str) -> Any:
    entries = _field(fields, name, list)
    message = f"the field {name!r} needs exactly one entry"
    require(len(entries) == 1, message, found=str(len(entries)))
    return entries[0]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(fields: Any, name: str) -> bytes:
    text = _field(fields, name, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        message = f"the field {name!r} is not base64"
        raise SignatureError(message, reason=Reason.FIELD_VALUE) from error
