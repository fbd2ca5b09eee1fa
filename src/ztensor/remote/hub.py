"""Files of model hubs: `hf://org/repo@revision/file`, by the hub's own rules for hosts and tokens.

A hub answers over HTTP at `{HF_ENDPOINT}/org/repo/resolve/revision/file`, and sends most files on
to another host. The token goes to the hub alone: it is dropped where an answer leads to another
host.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Literal, NamedTuple

from ztensor.errors import ArgumentValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDPOINT = "https://huggingface.co"
_URL = re.compile(
    r"hf://(?P<kind>datasets/|spaces/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?"
    r"(?:/(?P<path>.*))?",
    re.DOTALL | re.IGNORECASE,
)
_TOKEN_BYTES = 4096  # a token file is a line
_TRUE = ("1", "on", "yes", "true")


class HubFile(NamedTuple):
    """A file of a repository.

    Attributes:
        base: the URL beneath which the files of the revision are, without a slash at its end.
        path: the file's path in the repository; empty for the repository itself.
    """

    base: str
    path: str


def parse_hub_url(url: str) -> HubFile:
    """Return what file a URL means: `hf://org/repo/file`, and `@revision` behind the repository.

    Raises:
        ArgumentValueError: it names no repository.
    """
    match = _matched(url)
    place = f"{(match['kind'] or '').lower()}{match['repo']}"
    return HubFile(f"{endpoint()}/{place}/resolve/{_revision(match)}", match["path"] or "")


def tree_url(url: str) -> str:
    """Return where a hub's API says what is in a folder.

    Raises:
        ArgumentValueError: the URL names no repository.
    """
    match = _matched(url)
    place = f"{(match['kind'] or 'models/').lower()}{match['repo']}"
    folder = urllib.parse.quote((match["path"] or "").strip("/"))
    behind = f"/{folder}" if folder else ""
    return f"{endpoint()}/api/{place}/tree/{_revision(match)}{behind}"


def _matched(url: str) -> re.Match[str]:
    match = _URL.fullmatch(url)
    if match is None:
        raise ArgumentValueError(
            "this is no URL of a model on a hub",
            file=url,
            expected="hf://org/repo[@revision], and a file or a folder behind it",
        )
    return match


def _revision(match: re.Match[str]) -> str:
    # One such as refs/pr/1 is one part: written refs%2Fpr%2F1.
    return urllib.parse.quote(urllib.parse.unquote(match["revision"] or "main"), safe="")


def endpoint() -> str:
    """Return the hub's address: `HF_ENDPOINT`, or the public hub; no slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def headers(token: str | Literal[False] | None = None) -> Mapping[str, str]:
    """Return the headers that say who asks.

    Args:
        token: a token; None for that of the environment or the file of the hub's own tools; False
            for none.
    """
    if token is False or (token is None and _is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return {}
    text = token if isinstance(token, str) else _token()
    return {"authorization": f"Bearer {text}"} if text else {}


def _token() -> str:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if text := _one_line(os.environ.get(name, "")):
            return text
    path = os.environ.get("HF_TOKEN_PATH")
    if not path:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        home = os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")
        path = os.path.join(home, "token")
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return _one_line(file.read(_TOKEN_BYTES))
    except (OSError, UnicodeDecodeError):
        return ""  # nobody has logged in


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").strip()


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in _TRUE
