"""The identity of a remote object as a digest, for the cache on disk and for tokens; its version.

Two URLs name the same object only if they are equal, except for the signature of a known scheme,
which is new for each use. A signature is left out only if all of its parameters are there: a single
parameter that looks like a part of a signature may choose the object.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import without_secrets
from ztensor.remote.urls import Place

if TYPE_CHECKING:
    import datetime


# Parameters that a signed URL of the scheme always has, and those it may have. A value that alters
# the answer, such as `versionId`, `snapshot` or `rsct`, is in neither.
_SIGNATURES = tuple(
    (frozenset(always.split()), frozenset(also.split()))
    for always, also in (
        (  # AWS, version 4
            "X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders "
            "X-Amz-Signature",
            "X-Amz-Security-Token",
        ),
        ("AWSAccessKeyId Expires Signature", "x-amz-security-token"),  # AWS, version 2
        (  # Google, version 4
            "X-Goog-Algorithm X-Goog-Credential X-Goog-Date X-Goog-Expires X-Goog-SignedHeaders "
            "X-Goog-Signature",
            "",
        ),
        ("GoogleAccessId Expires Signature", ""),  # Google, version 2
        # Azure: an account's, a service's, one of a user, one by a stored policy
        ("sv ss srt sp se sig", "st spr sip ses"),
        ("sv sr sp se sig", "st spr sip ses sdd skoid sktid skt ske sks skv saoid suoid scid"),
        ("sv sr si sig", "st se sp spr sip ses sdd"),
        ("Expires Signature Key-Pair-Id", ""),  # CloudFront, a canned policy
        ("Policy Signature Key-Pair-Id", ""),  # CloudFront, a policy of one's own
    )
)
# Options of a store that choose the place; no keys.
_PLACES = re.compile(r"(.*_)?(endpoint(_url)?|base_url|account_name|bucket(_name)?|container_name)")


def unsigned(url: str) -> str:
    """Return a URL without the signature of a known scheme; any other stays as it is."""
    start, mark, query = url.partition("?")
    parts = query.split("&")
    names = [urllib.parse.unquote(part.partition("=")[0]) for part in parts]
    for always, also in _SIGNATURES:
        signing = [name for name in names if name in always or name in also]
        if always.issubset(signing) and len(signing) == len(set(signing)):
            rest = [p for p, name in zip(parts, names, strict=True) if name not in signing]
            return f"{start}?{'&'.join(rest)}" if rest else start
    return f"{start}{mark}{query}"


def object_id(url: str, place: Place) -> str:
    """Return a digest that two URLs share only if they name one object of one store.

    Args:
        url: the whole URL.
        place: its store and key.
    """
    store: Any = place.store
    options = getattr(store, "config", None) or {}
    where = sorted((key, str(text)) for key, text in options.items() if _PLACES.fullmatch(key))
    parts = [without_secrets(str(getattr(store, name, ""))) for name in ("prefix", "url")]
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    key = repr((type(store).__name__, unsigned(url), place.key, where, parts, account))
    return text_digest(key).hex()


def text_digest(text: str) -> bytes:
    """Return the sha256 of a text, from which its secrets cannot be recovered."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


class Version(NamedTuple):
    """A version of an object.

    Attributes:
        size: length in bytes; -1 before the first answer.
        e_tag: the ETag, or None if the store gives none.
        modified: when it was written, or None if the store does not report it.
    """

    size: int
    e_tag: str | None
    modified: datetime.datetime | None

    @property
    def is_strong(self) -> bool:
        """Return whether the ETag alone identifies the version."""
        return self.e_tag is not None and not self.e_tag.startswith("W/")

    def is_same(self, other: Version) -> bool:
        """Return whether two versions are equal; if only one has an ETag, they are not."""
        if (self.size, self.e_tag) != (other.size, other.e_tag):
            return False
        return self.is_strong or self.modified == other.modified

    def pin(self) -> dict[str, Any]:
        """Return request options with which a store refuses any other version."""
        if self.is_strong:
            return {"if_match": self.e_tag}
        return {} if self.modified is None else {"if_unmodified_since": self.modified}


UNKNOWN = Version(-1, None, None)


def version_of(meta: Any) -> Version:
    """Return the version that an answer of a store names."""
    modified = meta.get("last_modified")
    if modified is not None and modified.timestamp() == 0:  # no date, as obstore reports it
        modified = None
    return Version(int(meta["size"]), meta.get("e_tag"), modified)
