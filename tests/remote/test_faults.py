"""Each fault against each operation, and the n-th request of an upload, for every n."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ztensor
from tests.extent import sample
from tests.remote.fault_proxy import Fault
from tests.remote.faults import (
    FAULTS,
    KEY,
    LARGE,
    OLD,
    OPERATIONS,
    READING,
    Scene,
    attempt,
    scene_of,
)
from ztensor.errors import ZTensorError
from ztensor.numpy import save_file
from ztensor.remote import upload

if TYPE_CHECKING:
    from tests.remote.s3_server import S3Server

pytestmark = pytest.mark.slow

# Each operation waits for its limits: one that reads and one that writes are enough.
SLOW = ("slow trickle always", "silent always")
# What could leave half a block or one of another version in a cache.
CUT_OR_CHANGED = (
    "dropped from the third on", "body cut once", "body cut always", "too short always",
    "too long always", "another range always", "200 for 206 always", "replaced while opening",
    "replaced while reading", "shrunk while reading", "deleted while reading",
)  # fmt: skip
# a look at the old object; create, three parts, finish.
REQUESTS = 6


@pytest.fixture
def scene(s3: S3Server, bucket: str) -> Iterator[Scene]:
    with scene_of(s3, bucket) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_right_result_or_one_error_of_ours(scene: Scene, fault: str) -> None:
    """Each fault meets two operations that read and two that write; all in the full form."""
    operations = set(sample(OPERATIONS, 2, lambda name: f"{fault} {name in READING}"))
    if "while reading" in fault:
        operations.add("load")
    if fault in SLOW:
        operations = {"list", "save in parts"}
    found = {operation: attempt(scene, fault, operation) for operation in operations}
    assert {o: outcome.wrong for o, outcome in found.items() if outcome.wrong} == {}
    if fault.endswith(" once") and "short" not in fault and "for 206" not in fault:
        assert {o for o, outcome in found.items() if not outcome.text.startswith("right")} == set()
    if "while reading" in fault:
        assert "source_changed" in found["load"].text


@pytest.mark.parametrize("is_filled", [False, True])
def test_the_same_through_a_cache(scene: Scene, tmp_path: Path, *, is_filled: bool) -> None:
    """A copy is complete and of one version: a read after the fault is right."""
    for fault in CUT_OR_CHANGED:  # each against every operation: `make suite SUITE=remote`
        scene.cache = str(tmp_path / fault.replace(" ", "-"))
        if is_filled:
            scene.restore()
            assert READING["load"](scene)
        for operation in ("rows", "load"):
            assert attempt(scene, fault, operation).wrong == "", (fault, operation)
        scene.restore()
        assert READING["load"](scene), fault
        assert READING["rows"](scene), fault
        with ztensor.open(scene.at(KEY)) as reader:
            assert (reader["a"] == OLD["a"]).all(), fault


def save_large(scene: Scene) -> str:
    """Replace the object by a save in parts; return the error's name, or ''."""
    try:
        save_file(LARGE, scene.at(KEY))
    except ZTensorError as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("kind", ["403", "503", "dropped", "unheard", "cut", "short"])
def test_for_every_n_the_n_th_request_of_an_upload_fails(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 5 << 20)
    scene.restore()
    assert save_large(scene) == ""
    assert len(scene.proxy.record) == REQUESTS
    new = scene.s3.get(scene.bucket, KEY)
    for number in range(1, REQUESTS + 1):
        for count in sample((1, None), 1, lambda _, of=number: f"{kind} {of}"):  # type: ignore[misc]
            scene.restore()
            before = len(scene.s3.uploads(scene.bucket))
            scene.proxy.faults = [Fault(kind, first=number, count=count)]
            failed = save_large(scene)
            scene.proxy.faults = []
            body = scene.s3.get(scene.bucket, KEY)
            case = f"{kind}, request {number}, {count or 'and all after'}: {failed or 'done'}"
            assert body in (scene.old, new), case
            assert body == new or failed, case
            # A fault that stays hits the request that gives the upload up as well.
            began = number == 2 and kind in ("unheard", "cut", "short")
            if count == 1 and not began:
                assert len(scene.s3.uploads(scene.bucket)) == before, case


def test_an_exception_of_the_caller_gives_the_upload_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    import ztensor

    monkeypatch.setattr(upload, "PART_BYTES", 5 << 20)

    def fail() -> None:
        with ztensor.Writer(scene.at(KEY)) as writer:
            writer.write("x", np.zeros(1_500_000))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert scene.s3.get(scene.bucket, KEY) == scene.old
    assert scene.s3.uploads(scene.bucket) == []
