"""What `hf://` means, and whose token is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ztensor.errors import ArgumentValueError
from ztensor.remote.hub import ENDPOINT, headers, parse_hub_url

NAMES = (
    "HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))


@pytest.mark.parametrize(
    ("url", "base", "path"),
    [
        ("hf://o/r/f.zt", "/o/r/resolve/main", "f.zt"),
        ("hf://o/r@v1.0/a/f.zt", "/o/r/resolve/v1.0", "a/f.zt"),
        ("hf://o/r@refs%2Fpr%2F1/f.zt", "/o/r/resolve/refs%2Fpr%2F1", "f.zt"),
        ("hf://datasets/o/r/f.npz", "/datasets/o/r/resolve/main", "f.npz"),
        ("HF://o/r", "/o/r/resolve/main", ""),
        ("hf://o/r/a@b.zt", "/o/r/resolve/main", "a@b.zt"),
    ],
)
def test_a_url_names_a_file(url: str, base: str, path: str) -> None:
    assert parse_hub_url(url) == (ENDPOINT + base, path)


@pytest.mark.parametrize("url", ["hf://", "hf://o", "hf:///r/f", "hf://o/r@/f", "hf://o r/x/f"])
def test_what_names_no_repository(url: str) -> None:
    with pytest.raises(ArgumentValueError):
        parse_hub_url(url)


def test_the_endpoint_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror:8080/")
    assert parse_hub_url("hf://o/r/f").base == "http://mirror:8080/o/r/resolve/main"


def test_a_token_is_found_as_the_hubs_tools_find_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def whose() -> str | None:
        return headers().get("authorization")

    assert whose() is None
    cache = tmp_path / ".cache" / "huggingface"
    cache.mkdir(parents=True)
    (cache / "token").write_text("default\n")
    assert whose() == "Bearer default"
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "token").write_text("xdg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert whose() == "Bearer xdg"
    (tmp_path / "token").write_text(" home \r\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert whose() == "Bearer home"
    (tmp_path / "own").write_text("path")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "own"))
    assert whose() == "Bearer path"
    monkeypatch.setenv("HF_TOKEN", " variable\n")
    assert whose() == "Bearer variable"
    assert headers("mine") == {"authorization": "Bearer mine"}
    assert headers(False) == {}
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert headers() == {}
    assert headers("mine") == {"authorization": "Bearer mine"}
