"""URLs of a hub, and the token for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.conftest import Variables
from ztensor.errors import ArgumentValueError
from ztensor.remote.hub import ENDPOINT, headers, parse_hub_url

NAMES = (
    "HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME",
)  # fmt: skip


@pytest.fixture(autouse=True)
def none_set(variables: Variables, tmp_path: Path) -> None:
    variables({**dict.fromkeys(NAMES), "HOME": tmp_path, "USERPROFILE": tmp_path})


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
def test_a_url_without_a_repository(url: str) -> None:
    with pytest.raises(ArgumentValueError):
        parse_hub_url(url)


def test_the_endpoint_is_the_environments(variables: Variables) -> None:
    variables({"HF_ENDPOINT": "http://mirror:8080/"})
    assert parse_hub_url("hf://o/r/f").base == "http://mirror:8080/o/r/resolve/main"


def test_a_token_is_found_as_the_hubs_tools_find_it(variables: Variables, tmp_path: Path) -> None:
    def token() -> str | None:
        return headers().get("authorization")

    assert token() is None
    for name, folder, variable in (  # each goes before the one above
        ("default", ".cache/huggingface", {}),
        ("xdg", "huggingface", {"XDG_CACHE_HOME": tmp_path}),
        ("home", ".", {"HF_HOME": tmp_path}),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "token").write_text(f" {name} \r\n")
        variables(variable)
        assert token() == f"Bearer {name}"
    (tmp_path / "own").write_text("path")
    variables({"HF_TOKEN_PATH": tmp_path / "own"})
    assert token() == "Bearer path"
    variables({"HF_TOKEN": " variable\n"})
    assert token() == "Bearer variable"
    for is_implicit_off in (False, True):
        assert headers("mine") == {"authorization": "Bearer mine"}
        assert headers(False) == {}
        variables({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})
        assert is_implicit_off or headers() == {}
