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

from ztensor.errors import ArgumentValueError, MissingDependencyError, UsageError
from ztensor.ext import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDPOINT = "https://huggingface.co"
_URL = re.compile(
    r"hf://(?P<kind>datasets/|spaces/)?(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?"
    r"(?:/(?P<path>.*))?",
    re.DOTALL | re.IGNORECASE,
)
MOST_LISTED = 100_000  # entries of a folder, of a hub or a store
_TOKEN_BYTES = 4096  # a token file is a line
_TRUE = ("1", "on", "yes", "true")


class HubFile(NamedTuple):
    """A file of a repository.

    Attributes:
        base: the URL that the paths of files follow, without a slash at its end.
        path: the file's path in the repository; empty for the repository itself.
    """

    base: str
    path: str


def parse_hub_url(url: str) -> HubFile:
    """Parse `hf://org/repo@revision/file`; the revision may be missing.

    Raises:
        ArgumentValueError: the URL names no repository.
    """
    match = _matched(url)
    place = f"{(match['kind'] or '').lower()}{match['repo']}"
    return HubFile(f"{endpoint()}/{place}/resolve/{_revision(match)}", match["path"] or "")


def list_folder(url: str, headers: Mapping[str, str]) -> list[Store.Listed]:
    """Return the files and subfolders directly in a folder of a repository.

    Args:
        url: the folder's, or the repository's.
        headers: sent with each request, to the hub alone.

    Raises:
        MissingDependencyError: huggingface_hub is not installed.
        UsageError: the folder has more than `MOST_LISTED` entries.
        Exception: any error of huggingface_hub; `failures.asked` translates it.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingDependencyError(
            "listing a folder of a hub needs the library huggingface_hub", install="huggingface_hub"
        ) from error
    match = _matched(url)
    folder = (match["path"] or "").strip("/")
    entries = HfApi(endpoint=endpoint(), token=False, headers=dict(headers)).list_repo_tree(
        match["repo"],
        folder or None,
        revision=urllib.parse.unquote(match["revision"] or "main"),
        repo_type=(match["kind"] or "models/").lower().removesuffix("s/"),
    )
    start = f"{folder}/" if folder else ""
    listed: list[Store.Listed] = []
    for count, entry in enumerate(entries):
        if count == MOST_LISTED:
            raise UsageError(f"the folder has more than {MOST_LISTED:,} entries; name a file")
        name = entry.path.removeprefix(start)
        if entry.path.startswith(start) and name and "/" not in name:
            listed.append(Store.Listed(name, is_folder=not hasattr(entry, "size")))
    return listed


def _matched(url: str) -> re.Match[str]:
    match = _URL.fullmatch(url)
    if match is None:
        raise ArgumentValueError(
            "not a URL of a model on a hub",
            file=url,
            expected="hf://org/repo[@revision], followed by a file or a folder",
        )
    return match


def _revision(match: re.Match[str]) -> str:
    # The slashes of refs/pr/1 are escaped: refs%2Fpr%2F1.
    return urllib.parse.quote(urllib.parse.unquote(match["revision"] or "main"), safe="")


def endpoint() -> str:
    """Return the hub's address: `HF_ENDPOINT`, or the public hub; no slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def headers(token: str | Literal[False] | None = None) -> Mapping[str, str]:
    """Return the headers that authorize the caller.

    Args:
        token: a token; by default the token of the environment, or of the file that `hf auth login`
            writes; False sends no token.
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
        return ""  # no login


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").strip()


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in _TRUE
