from __future__ import annotations

import collections
import copy
import errno
import functools
import inspect
import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

import ztensor
from tests.naming import shown
from ztensor import boundary
from ztensor.arguments import wrong_argument
from ztensor.errors import (
    ArgumentTypeError,
    InternalError,
    LimitError,
    MissingDependencyError,
    Reason,
    SourceError,
    SourceNotFoundError,
    ZTensorError,
)
from ztensor.numpy import save
from ztensor.testing.builder import build

if TYPE_CHECKING:
    from ztensor import Tensor
    from ztensor.sharded.naming import Progress
    from ztensor.source.sink import Durable

# What is raised counts as ours where code of the package raised it: these stand for such code.
OURS: dict[str, Any] = {"__name__": "ztensor.somewhere", "__builtins__": __builtins__}


def define(source: str) -> None:
    exec(compile(source, "somewhere.py", "exec"), OURS)  # noqa: S102


define(
    """
def fails(error):
    raise error

def calls(function, *args):
    return function(*args)

def yields(error):
    yield 1
    raise error

class Thing:
    def __init__(self, error=None):
        self.error = error

    def method(self, value):
        '''Say what it does.'''
        if self.error:
            raise self.error
        return value

    def many(self, *values, key=None):
        if self.error:
            raise self.error
        return values, key

    @property
    def some(self):
        raise self.error

    @classmethod
    def made(cls, error):
        raise error

    def each(self):
        yield 1
        raise self.error

    def _private(self):
        raise self.error
"""
)
fails: Callable[..., Any] = boundary.public(OURS["fails"])
calls: Callable[..., Any] = boundary.public(OURS["calls"])
Thing: Any = boundary.public(OURS["Thing"])


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (MemoryError(), LimitError, Reason.LIMIT_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), LimitError, "limit_memory"),
        (RuntimeError("can't start new thread"), LimitError, Reason.LIMIT_MEMORY),
        (SystemError("error return without exception set"), LimitError, Reason.LIMIT_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), LimitError, Reason.LIMIT_MEMORY),
        (RecursionError(), LimitError, Reason.LIMIT_STACK),
        (OSError(errno.EIO, "I/O error"), SourceError, Reason.SOURCE_FAILED),
        (FileNotFoundError(errno.ENOENT, "no", "x"), SourceNotFoundError, "source_not_found"),
        (ImportError("no such library"), MissingDependencyError, Reason.MISSING_DEPENDENCY),
        (ValueError("no"), InternalError, Reason.INTERNAL),
        (KeyError("no"), InternalError, Reason.INTERNAL),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), InternalError, Reason.INTERNAL),
    ],
    ids=repr,
)
def test_what_escapes_becomes_ours(
    error: Exception, kind: type[ZTensorError], reason: Reason
) -> None:
    with pytest.raises(ZTensorError) as caught:
        fails(error)
    assert type(caught.value) is kind
    assert caught.value.reason == reason
    assert caught.value.__cause__ is error
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)


def test_a_bug_is_told_as_one() -> None:
    with pytest.raises(InternalError, match=r"fails\(\) failed .* bug in ztensor") as caught:
        fails(ValueError("bad \x1b[31mname"))
    assert r"ValueError 'bad \x1b[31mname'" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert str(copy.copy(caught.value)) == str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ztensor.FormatError("ours"),
        UserWarning("made an error"),
        StopIteration(),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
    ],
    ids=repr,
)
def test_what_passes_as_it_is(error: Any) -> None:
    with pytest.raises(type(error)) as caught:
        fails(error)
    assert caught.value is error


# --- Whose exception it is ----------------------------------------------------------------------


class Broken(Exception):
    pass


def of_caller(*_: object) -> Any:
    raise Broken


@pytest.mark.parametrize("error", [Broken, MemoryError, OSError, ValueError, RecursionError])
def test_a_callback_of_the_caller_may_raise_what_it_likes(error: type[Exception]) -> None:
    def callback(*_: object) -> None:
        raise error

    with pytest.raises(error) as caught:
        calls(callback)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.verify(progress=of_caller),
        lambda reader: reader.verify(progress=of_caller, threads=2),
        lambda reader: reader.read(name for name in (of_caller(),)),
        lambda reader: ztensor.stats(reader, progress=of_caller),
        lambda reader: reader.read_jax("w", sharding=of_caller),
    ],
)
def test_callbacks_of_public_calls(call: Callable[[ztensor.Reader], Any]) -> None:
    reader = ztensor.open(save({"w": np.ones((64, 64), np.float32)}))
    with reader, pytest.raises(Broken):
        call(reader)


def test_the_standard_library_and_numpy_stand_for_ours() -> None:
    with pytest.raises(InternalError):
        calls(functools.partial(np.zeros, -1))
    with pytest.raises(InternalError):
        calls(__import__("json").loads, "{")


def test_a_wrong_signature_is_pythons_error() -> None:
    of_package: Any = ztensor.open
    for wrong in (
        fails,
        lambda: Thing().method(),
        lambda: Thing().method(1, 2),
        lambda: Thing().method(valeu=1),
        lambda: Thing(1, 2),
        lambda: Thing().many(kee=1),
        of_package,
        lambda: of_package(b"", nmap=True),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert type(caught.value) is TypeError


# --- What is marked -----------------------------------------------------------------------------


def test_a_class_is_marked_as_a_whole() -> None:
    thing = Thing(ValueError("no"))
    for call in (
        lambda: thing.method(1),
        lambda: thing.many(1),
        lambda: thing.some,
        lambda: Thing.made(ValueError("no")),
        lambda: list(thing.each()),
    ):
        with pytest.raises(InternalError):
            call()
    with pytest.raises(ValueError, match="no"):
        thing._private()


def test_a_marked_function_looks_as_before() -> None:
    assert Thing().method(value=3) == 3
    assert Thing().many(1, 2, key=3) == ((1, 2), 3)
    assert next(iter(Thing().each())) == 1
    assert Thing.method.__doc__ == "Say what it does."
    assert str(inspect.signature(Thing.method)) == "(self, value)"
    assert inspect.isgeneratorfunction(Thing.each)
    assert pickle.loads(pickle.dumps(ztensor.open)) is ztensor.open
    assert str(inspect.signature(ztensor.Reader.metadata)).startswith("(self, name: ")


def test_a_generator_keeps_what_is_sent_and_closed() -> None:
    def echo() -> Iterator[Any]:
        got = yield 1
        yield got

    marked: Any = boundary.public(echo)()
    assert next(marked) == 1
    assert marked.send(2) == 2
    marked.close()


# --- Exhaustion ---------------------------------------------------------------------------------


def test_memory_is_given_back_before_the_caller_looks() -> None:
    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1

        def __del__(self) -> None:
            Large.alive -= 1

    OURS["Large"] = Large
    define("def takes():\n    large = Large()\n    raise MemoryError")
    with pytest.raises(LimitError) as caught:
        boundary.public(OURS["takes"])()
    assert caught.value.reason is Reason.LIMIT_MEMORY
    assert Large.alive == 0


def frames_of_ours(error: BaseException) -> list[str]:
    names = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [name for name in names if name.startswith("ztensor")]


@pytest.mark.slow
def test_a_stack_that_is_nearly_used_up() -> None:
    """At every depth a call succeeds, is refused, or could not even be made."""
    data = build()
    unmade: list[RecursionError] = []

    def attempt() -> str:
        try:
            with ztensor.open(data) as reader:
                reader.verify(threads=1)
        except LimitError as error:
            return str(error.reason)
        except RecursionError as error:  # not one frame was left for the edge to call anything
            unmade.append(error)  # looked at below: here there may be no frame left for it
            return "not made"
        return "done"

    def deep(calls: int) -> str:
        return attempt() if calls == 0 else deep(calls - 1)

    attempt()  # all modules are loaded
    ended = collections.Counter[str]()
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + 300)
        for calls in range(120, 290):
            ended[deep(calls)] += 1
    finally:
        sys.setrecursionlimit(limit)
    assert set(ended) <= {"done", "limit_stack", "not made"}
    assert {name for error in unmade for name in frames_of_ours(error)} <= {"ztensor.boundary"}
    assert min(ended["done"], ended["limit_stack"]) > 10
    assert ended["not made"] < 5


# --- Arguments ----------------------------------------------------------------------------------


def typed(
    path: str | os.PathLike[str],
    names: Iterable[str] = (),
    count: int | None = None,
    *,
    durable: Durable = "auto",
    progress: Progress | None = None,
    shape: Sequence[int] = (),
    attributes: Mapping[str, object] | None = None,
    kind: Literal["a", "b"] = "a",
    tensor: Tensor | None = None,
    anything: Any = None,
) -> None:
    """Stand for a public function that fails where nobody foresaw it."""


RIGHT = [
    {"path": "x"}, {"path": Path("x")}, {"names": "abc"}, {"names": {"a": 1}}, {"count": True},
    {"count": np.int64(3)}, {"durable": False}, {"progress": lambda done, total: None},
    {"progress": print}, {"shape": np.array([1, 2])}, {"attributes": {"a": object()}},
    {"kind": "b"}, {"tensor": ztensor.Tensor(np.ones(3))}, {"anything": object()},
    {"names": iter([1])},  # can be looked at once alone
]  # fmt: skip
WRONG = [
    {"path": 3}, {"path": None}, {"path": b"x"}, {"names": 3}, {"names": [1]}, {"names": {1: 2}},
    {"names": np.zeros((2, 2))}, {"count": 1.5}, {"count": np.array([1, 2])}, {"durable": "never"},
    {"durable": None}, {"progress": 3}, {"progress": lambda: None}, {"shape": [1.5]},
    {"shape": 3}, {"attributes": [1]}, {"attributes": {1: 2}}, {"kind": "c"}, {"kind": []},
    {"tensor": np.ones(3)},
]  # fmt: skip


@pytest.mark.parametrize("given", RIGHT, ids=shown)
def test_right_arguments_are_not_blamed(given: dict[str, Any]) -> None:
    assert wrong_argument(typed, (), {"path": "x", **given}) is None


@pytest.mark.parametrize("given", WRONG, ids=shown)
def test_the_wrong_argument_is_named(given: dict[str, Any]) -> None:
    error = wrong_argument(typed, ("x",) if "path" not in given else (), given)
    assert error is not None
    assert repr(next(iter(given))) in str(error)
    assert error.expected == typed.__annotations__[next(iter(given))]


def test_a_call_that_failed_blames_a_wrong_argument() -> None:
    with pytest.raises(ArgumentTypeError, match=r"'limits' cannot be used: 3, expected Limits"):
        ztensor.open(build(), limits=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="'checksum' cannot be used"):
        ztensor.Writer(io.BytesIO()).write("w", np.ones(3), checksum=np.ones(3))  # type: ignore[arg-type]
