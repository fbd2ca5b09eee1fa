"""Each system call fails once, the first, then the second, until the operation gets through."""

from __future__ import annotations

import contextlib
import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from tests.descriptors import open_files
from tests.extent import sample
from tests.faults.calls import Calls, Fault
from tests.faults.judge import Outcome, read_state
from tests.faults.operations import NEW, OPERATIONS, OTHER, TARGET, start
from tests.faults.trials import COMPOUND, FAULTS, fail_each
from ztensor import edit

if TYPE_CHECKING:
    from tests.faults.operations import Operation

EVERY = [
    (operation, nameless)
    for operation in OPERATIONS.values()
    for nameless in ((True, False) if operation.puts_in_place else (True,))
]
# Of an operation one version and one way to name the temporary file, and of the faults of each kind
# of call one that fails and one that is interrupted; all in the full form.
ALL_FAULTS = [*([fault] for fault in FAULTS.values()), *COMPOUND.values()]
CASES = [
    pytest.param(operation, nameless, id=f"{operation.name}{'' if nameless else ', named'}")
    for operation, nameless in sample(EVERY, 1, lambda case: case[0].name.removesuffix(", 2.x"))
]


def kind_of(operation: Operation, faults: list[Fault]) -> str:
    """Return the kind of a fault: operation, effect and calls."""
    how = faults[0].how
    done = {"full": "fails", "error": "fails", "interrupted": "interrupt"}.get(how, how)
    return f"{operation.name}: {done} {[fault.kind for fault in faults]}"


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "nameless"), CASES)
def test_the_old_state_survives_every_failing_call(
    operation: Operation, nameless: bool, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    judge = operation.prepare(template)
    outcomes = set()
    never = {"cut"} if operation.puts_in_place else {"rename", "link", "unlink"}
    for faults in sample(ALL_FAULTS, 1, lambda faults: kind_of(operation, faults)):
        if faults[-1].kind in never:
            continue  # no such call: `run.py` shows that
        attempts = fail_each(
            operation, faults, template, tmp_path / "tried", judge, nameless=nameless
        )
        for attempt in attempts:
            is_compound = len(faults) > 1
            assert attempt.outcome in (Outcome.OLD, Outcome.NEW) or (
                is_compound and attempt.outcome is Outcome.RECOVERED and not operation.is_never_torn
            )
            refused = isinstance(attempt.error, ztensor.SourceError)
            is_single = not is_compound and operation.between is None
            if refused and faults[0].kind == "write" and is_single:
                assert attempt.grown == 0  # a full disk gets its room back
            outcomes.add((attempt.outcome, type(attempt.error).__name__))
    assert (Outcome.NEW, "NoneType") in outcomes  # short writes raise nothing
    assert any(name == "SourceError" for _, name in outcomes)


def test_the_message_says_what_was_kept(tmp_path: Path) -> None:
    start(tmp_path)
    calls = Calls(tmp_path, faults=[Fault("write", 1, code=errno.ENOSPC)])
    with calls, pytest.raises(ztensor.SourceError, match="still holds its old state"):
        edit.remove_tensors(tmp_path / TARGET, names="scalar")
    calls = Calls(tmp_path, faults=[Fault("write", 1, "full", errno.ENOSPC), Fault("cut", 1)])
    with calls, pytest.raises(ztensor.SourceError, match="ztensor repair"):
        edit.remove_tensors(tmp_path / TARGET, names="scalar")
    assert len(read_state(tmp_path / TARGET, recover=True)["objects"]) == 8


def test_a_failed_flush_is_not_tried_again(tmp_path: Path) -> None:
    """After one the system may have dropped the pages: a second one may succeed without them."""
    start(tmp_path)
    calls = Calls(tmp_path, faults=[Fault("flush", 1)])
    with calls, pytest.raises(ztensor.SourceError) as caught:
        edit.replace_tensor(tmp_path / TARGET, "scalar", NEW)
    assert caught.value.errno == errno.EIO
    kinds = [call.kind for call in calls.log]
    assert kinds == ["write", "write"]  # no flush that worked, and nothing behind the blobs


def test_a_writer_that_failed_is_closed_and_unlocked(tmp_path: Path) -> None:
    start(tmp_path)
    with Calls(tmp_path, faults=[Fault("write", 1, code=errno.ENOSPC)]):
        writer = ztensor.Editor(tmp_path / TARGET)
        writer.write("new", NEW)
        with pytest.raises(ztensor.SourceError):
            writer.finish()
    with pytest.raises(ztensor.errors.ClosedError):
        writer.write("newer", NEW)
    edit.remove_tensors(tmp_path / TARGET, names="scalar")


@pytest.mark.slow
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    start(tmp_path)
    before = open_files()
    for kind in ("write", "flush", "rename", "link", "open"):
        for name in ("remove", "rename, atomic", "compact", "save over"):
            start(tmp_path)
            with (
                contextlib.suppress(ztensor.SourceError),
                Calls(tmp_path, faults=[Fault(kind, 1)]),
            ):
                OPERATIONS[name].run(tmp_path)
    assert not open_files() - before


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("how", ["full", "error", "interrupt"])
def test_threads_beside_the_writing_end_with_it(
    how: str, compression: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", "3")
    start(tmp_path)
    old = (tmp_path / TARGET).read_bytes()
    large = np.arange(5 << 20, dtype=np.int32)
    for number in (1, 2, 3):
        for is_save in (True, False):
            calls = Calls(tmp_path, faults=[Fault("write", number, how, errno.ENOSPC)])
            with contextlib.suppress(ztensor.SourceError, KeyboardInterrupt), calls:
                make = ztensor.Writer if is_save else ztensor.Editor
                with make(tmp_path / TARGET, compression=compression) as writer:
                    writer.write("a", large)
                    writer.write("b", large[::2])
            assert calls.has_struck
            assert not [t for t in threading.enumerate() if t.name.startswith("ztensor")]
            assert (tmp_path / TARGET).read_bytes().startswith(old)
            start(tmp_path)


@pytest.mark.parametrize("how", ["write", "in_place"])
@pytest.mark.parametrize("kind", ["write", "flush", "rename", "link", "cut", "open"])
def test_a_repair_that_fails_changes_nothing(how: str, kind: str, tmp_path: Path) -> None:
    start(tmp_path)
    path = tmp_path / TARGET
    old = read_state(path)
    torn = path.read_bytes() + b"the beginning of something" * 50
    for number in range(1, 20):
        path.write_bytes(torn)
        calls = Calls(tmp_path, faults=[Fault(kind, number, code=errno.ENOSPC)])
        options: dict[str, Any] = (
            {"write": tmp_path / "out.zt"} if how == "write" else {"in_place": True}
        )
        code = None
        try:
            with calls:
                edit.repair(path, **options)
        except ztensor.SourceError as error:
            code = error.errno
        assert code in (None, errno.ENOSPC)
        tail = tmp_path / f"{TARGET}.tail-1"
        if path.read_bytes() != torn:  # cut: then the tail was kept before
            assert how == "in_place"
            assert path.read_bytes() + tail.read_bytes() == torn
        assert read_state(path, recover=True) == old
        for extra in {*tmp_path.iterdir()} - {path, tmp_path / OTHER}:
            assert extra in (tail, tmp_path / "out.zt")
            extra.unlink()
        if not calls.has_struck:
            return
    pytest.fail("the repair never got through")
