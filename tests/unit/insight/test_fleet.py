"""Many files by any executor: the same results, each file once, whatever goes wrong."""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import fleet
from ztensor.errors import SourceError, SourceNotFoundError, UsageError, ZTensorError
from ztensor.numpy import load_file, save_file

COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some files: one is damaged, one truncated, one of another kind."""
    found = tmp_path_factory.mktemp("fleet")
    for number in range(COUNT):
        save_file({"w": np.full(64, number, np.float32), "b": np.ones(3)}, found / f"{number}.zt")
    data = bytearray((found / "3.zt").read_bytes())
    data[70] ^= 1
    (found / "3.zt").write_bytes(data)
    (found / "4.zt").write_bytes(data[:-20])
    (found / "5.zt").write_bytes(b"nothing")
    return found


@pytest.fixture(scope="module")
def files(folder: Path) -> list[str]:
    return [*(str(folder / f"{number}.zt") for number in range(COUNT)), str(folder / "gone.zt")]


@pytest.fixture(scope="module")
def processes() -> Iterator[concurrent.futures.Executor]:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        yield pool


@pytest.fixture(params=["here", "threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[concurrent.futures.Executor | None]:
    if request.param == "here":
        yield None
    elif request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield pool


FUNCTIONS: dict[str, Callable[..., Iterator[tuple[Any, Any]]]] = {
    "verify": fleet.verify_files,
    "stats": fleet.stats_files,
    "hash": fleet.hash_files,
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", FUNCTIONS)
def test_every_file_comes_once_with_a_result_or_one_error(
    files: list[str], executor: concurrent.futures.Executor | None, verb: str
) -> None:
    calls: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        calls.append((done, total))

    pairs = list(FUNCTIONS[verb](files, executor=executor, progress=note))
    found = dict(pairs)
    assert sorted(source for source, _ in pairs) == sorted(files)
    assert calls == [(number, len(files)) for number in range(1, len(files) + 1)]
    bad = {os.path.basename(file) for file, one in pairs if isinstance(one, ZTensorError)}
    assert bad - {"3.zt"} == {"4.zt", "5.zt", "gone.zt"}
    assert isinstance(found[files[-1]], SourceNotFoundError)
    assert found[files[-1]].file == files[-1]
    with ztensor.open(files[7]) as reader:
        same = {
            "verify": reader.verify(),
            "stats": ztensor.stats(reader),
            "hash": fleet.FileHash(
                ztensor.content_hash(reader), ztensor.insight.tensor_hashes(reader)
            ),
        }
    assert found[files[7]] == same[verb]
    if verb == "verify":
        assert found[files[3]].outcome == "damaged"
    with pytest.raises(SourceNotFoundError):
        list(FUNCTIONS[verb]([files[-1]], executor=executor, on_error="raise"))


def test_patterns_choose_objects(files: list[str]) -> None:
    ((_, report),) = fleet.verify_files(files[:1], include="w")
    assert isinstance(report, ztensor.io.VerifyReport)
    assert report.objects == 1
    ((_, stats),) = fleet.stats_files([files[0]], exclude=["w"])
    assert isinstance(stats, ztensor.insight.StatsReport)
    assert list(stats) == ["b"]
    ((_, error),) = fleet.hash_files([files[0]], include="nothing")
    assert isinstance(error, UsageError)


class Counting(concurrent.futures.ThreadPoolExecutor):
    """Counts the jobs in flight."""

    def __init__(self) -> None:
        super().__init__(2)
        self.now = self.most = 0
        self.lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: Any) -> None:
        with self.lock:
            self.now -= 1


def test_few_files_are_in_flight_and_sources_are_taken_as_they_are_needed(files: list[str]) -> None:
    taken = 0

    def many() -> Iterator[str]:
        nonlocal taken
        for _ in range(1_000_000):
            taken += 1
            yield files[0]

    with Counting() as pool:
        results = fleet.verify_files(many(), executor=pool)
        for _ in range(20):
            next(results)
        results.close()  # type: ignore[attr-defined]
    assert pool.most <= 8
    assert taken <= 20 + 8


def test_an_iterator_that_is_dropped_cancels_what_has_not_begun(files: list[str]) -> None:
    begun = threading.Event()
    free = threading.Event()
    pool = concurrent.futures.ThreadPoolExecutor(1)

    def block() -> None:
        begun.set()
        free.wait(30)

    pool.submit(block)
    begun.wait(30)
    done: list[concurrent.futures.Future[Any]] = []

    class Watched(concurrent.futures.Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            done.append(pool.submit(fn, *args, **kwargs))
            if len(done) == 2:
                free.set()
            return done[-1]

    results = fleet.verify_files(files * 3, executor=Watched(), workers=8)
    next(results)
    results.close()  # type: ignore[attr-defined]
    pool.shutdown()
    assert len(done) == 32
    assert all(one.done() for one in done)


# --- Executors that fail -----------------------------------------------------------------------


class Deadly(fleet.Processes):
    """A worker that is given one of the files dies, as by hostile bytes or of want of memory."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        return super().submit(unless_deadly, fn)

    def alone(self, job: Any) -> Any:
        return super().alone(functools.partial(unless_deadly, job))


def unless_deadly(job: Any) -> Any:
    if "deadly" in repr(job):
        os._exit(1)
    return job()


@pytest.mark.slow
def test_a_file_that_kills_its_worker_alone_has_the_only_error(tmp_path: Path) -> None:
    sources = [str(tmp_path / f"{name}.zt") for name in ("a", "b", "deadly", "c", "d", "e")]
    for source in sources:
        save_file({"w": np.ones(len(source))}, source)
    with Deadly(2) as executor:
        pairs = list(fleet.hash_files(sources, executor=executor))
        assert sorted(source for source, _ in pairs) == sorted(sources)
        found = dict(pairs)
        error = found.pop(sources[2])
        assert isinstance(error, SourceError)
        assert error.file == sources[2]
        assert all(isinstance(one, fleet.FileHash) for one in found.values())
        job = functools.partial(os.path.getsize, sources[0])
        assert executor.submit(job).result() == os.path.getsize(sources[0])


@pytest.mark.slow
def test_a_killed_worker_costs_no_file(files: list[str]) -> None:
    others = multiprocessing.active_children()
    alone = {source: type(found) for source, found in fleet.hash_files(files)}
    with fleet.Processes(2) as executor:
        pairs = fleet.hash_files(files, executor=executor)
        found = dict([next(pairs)])
        child = next(one for one in multiprocessing.active_children() if one not in others)
        child.kill()
        found.update(pairs)
    assert {source: type(one) for source, one in found.items()} == alone


class Refusing(concurrent.futures.Executor):
    """Refuses jobs, drops them, or fails by itself."""

    def __init__(self, how: str) -> None:
        self._how = how

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        if self._how == "refuses":
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if self._how == "dies":
            future.set_exception(BrokenProcessPool())
        elif self._how == "drops":
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(OSError("the network is down"))
        return future


@pytest.mark.parametrize("how", ["refuses", "drops", "dies", "fails"])
def test_an_executor_that_fails_is_one_error_for_each_file(files: list[str], how: str) -> None:
    pairs = list(fleet.verify_files(files, executor=Refusing(how)))
    assert [source for source, _ in pairs] == files
    assert all(type(one) is SourceError and one.file == source for source, one in pairs)
    assert all(("died" in str(one)) == (how == "dies") for _, one in pairs)
    with pytest.raises(SourceError):
        list(fleet.verify_files(files, executor=Refusing(how), on_error="raise"))


@pytest.mark.parametrize(
    "wrong",
    [{"executor": "processes"}, {"on_error": "ignore"}, {"workers": 0}, {"sources": 3}],
    ids=str,
)
def test_wrong_arguments_raise_at_once(wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"sources": ["a.zt"], **wrong}
    with pytest.raises(UsageError):
        fleet.verify_files(**arguments)


# --- Conversion --------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_are_converted_into_a_folder(
    files: list[str], executor: concurrent.futures.Executor | None, tmp_path: Path
) -> None:
    target = tmp_path / "new"
    found = dict(fleet.convert_files(files[:3], target, to="npz", executor=executor))
    assert sorted(os.listdir(target)) == ["0.npz", "1.npz", "2.npz"]
    assert all(one.format == "npz" for one in found.values())  # type: ignore[union-attr]
    assert load_file(target / "2.npz")["w"][0] == 2
    again = dict(fleet.convert_files(files[:2], target, to="npz", executor=executor))
    assert all(isinstance(one, UsageError) for one in again.values())
    over = fleet.convert_files(files[:1], target, to="npz", overwrite=True, executor=executor)
    assert all(isinstance(one, ztensor.converting.ConversionReport) for _, one in over)


@pytest.mark.parametrize("to", ["zt", "safetensors"])
def test_a_dry_run_makes_no_folder_and_needs_none(
    files: list[str], to: str, tmp_path: Path
) -> None:
    for size in (None, 300):
        target = tmp_path / "new" / "one"
        found = fleet.convert_files(files[:2], target, to=to, dry_run=True, max_shard_size=size)
        assert all(isinstance(one, ztensor.converting.ConversionReport) for _, one in found)
    assert os.listdir(tmp_path) == []


def test_no_new_file_takes_the_place_of_another(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_file({"w": np.array([len(name), ord(name[0])])}, tmp_path / name / "m.zt")
    sources = [tmp_path / "one" / "m.zt", tmp_path / "two" / "m.zt"]
    first, second = fleet.convert_files(sources, tmp_path / "new", to="npz")
    assert isinstance(first[1], ztensor.converting.ConversionReport)
    assert isinstance(second[1], UsageError)
    assert load_file(tmp_path / "new" / "m.npz")["w"][1] == ord("o")
    # `overwrite` replaces no source.
    np.savez(tmp_path / "one" / "m.npz", w=np.zeros(2))
    several = [tmp_path / "one" / "m.npz", tmp_path / "two" / "m.zt"]
    before = (tmp_path / "two" / "m.zt").read_bytes()
    (_, error), _ = fleet.convert_files(several, tmp_path / "two", overwrite=True)
    assert isinstance(error, UsageError)
    assert (tmp_path / "two" / "m.zt").read_bytes() == before
    with pytest.raises(UsageError, match="unknown option"):
        fleet.convert_files(sources, tmp_path / "new", progres=3)
