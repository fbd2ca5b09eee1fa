"""The rights of a new file, limited by its sources, and mounts that refuse modes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.users import GROUP, MASK, OTHER, OWNER, USER, access_list
from ztensor.io.source.rights import Rights, narrow

pytestmark = pytest.mark.skipif(not hasattr(os, "fchmod"), reason="the system has no modes")


def a_list(*, mask: int = 6, user: int = 6, group: int = 4) -> bytes:
    return access_list({OWNER: 6, (USER, 1234): user, GROUP: group, MASK: mask, OTHER: 0})


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.fchmod(descriptor, 0o666)
    yield descriptor
    os.close(descriptor)


def granted(file: int) -> int:
    return stat.S_IMODE(os.fstat(file).st_mode)


def of(file: int, mode: int, acl: bytes | None = None) -> Rights:
    ours = Rights.of(file)
    return Rights(ours.owner, ours.group, mode, acl)


def test_a_source_without_a_list_gives_its_bits(file: int) -> None:
    narrow(file, None, [of(file, 0o640), of(file, 0o660)])
    assert granted(file) == 0o640


@pytest.mark.parametrize("acl", [a_list(), b"?", b"", a_list()[:-1]])
def test_a_list_that_the_new_file_has_not_leaves_the_owner_alone(file: int, acl: bytes) -> None:
    narrow(file, None, [of(file, 0o666, acl)])
    assert granted(file) == 0o600


@pytest.mark.skipif(not hasattr(os, "getxattr"), reason="the system has no lists")
@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (a_list(), 0o640),
        (a_list(mask=0), 0o640),  # that is in the mode
        (a_list(user=0), 0o600),
        (a_list(group=0), 0o600),
        (None, 0o644),
    ],
)
def test_lists_are_alike_that_differ_in_the_bits_of_the_mode(
    file: int, theirs: bytes | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getxattr", lambda *_: a_list())
    narrow(file, None, [of(file, 0o644 if theirs is None else 0o640, theirs)])
    assert granted(file) == expected
