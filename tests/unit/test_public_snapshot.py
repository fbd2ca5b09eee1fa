"""Public names and signatures are those of `tests/typing/public.txt`."""

from __future__ import annotations

import difflib

import pytest

from tests.typing import snapshot

KEPT = snapshot.kept()
NOW = snapshot.sections()


def test_the_file_has_every_public_module() -> None:
    assert list(KEPT) == snapshot.MODULES


@pytest.mark.parametrize("name", snapshot.MODULES)
def test_public_names_and_signatures_are_the_known_ones(name: str) -> None:
    if name not in NOW:
        pytest.skip("its library is not installed")
    difference = difflib.unified_diff(KEPT[name], NOW[name], "public.txt", "now", n=0, lineterm="")
    message = "if that is meant: python tests/typing/snapshot.py, and a fragment in changes/"
    assert KEPT[name] == NOW[name], "\n".join([message, *difference])


def test_a_changed_signature_is_a_changed_line() -> None:
    def before(name: str, *, copy: bool = False) -> None: ...
    def after(name: str, *, copy: bool = True) -> None: ...

    lines = [list(snapshot.signatures(function)) for function in (before, after)]
    assert lines == [
        ["(name: str, *, copy: bool = False) -> None"],
        ["(name: str, *, copy: bool = True) -> None"],
    ]
