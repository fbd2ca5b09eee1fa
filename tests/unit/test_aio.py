"""Asynchronous reads: equal to the reader's, and the event loop goes on."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import ztensor
from ztensor import Tensor, aio
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    ObjectNotFoundError,
    SourceNotFoundError,
)
from ztensor.numpy import save, save_file

T = TypeVar("T")
ROWS = np.arange(600 * 40, dtype=np.float32).reshape(600, 40)
QUANTIZED = Tensor.quantize(ROWS, bits=4, group_size=8)
STORED = save({"rows": ROWS, "q": QUANTIZED, "s": Tensor.csr([1.0], [0], [0, 1], (1, 3))})


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Slow(io.BytesIO):
    """A file that waits before a read until it may go on."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.may_read, self.is_read = threading.Event(), threading.Event()
        self.may_read.set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.is_read.set()
        assert self.may_read.wait(20)
        return super().read(size)


def test_reads_are_those_of_the_reader(tmp_path: Path) -> None:
    (tmp_path / "a.zt").write_bytes(STORED)

    async def work() -> None:
        async with await aio.open(tmp_path / "a.zt") as file:
            assert file.keys() == ["q", "rows", "s"]
            assert (await file.metadata("q")).format == "quantized_group"
            whole = await file.read_numpy("rows")
            np.testing.assert_array_equal(whole, ROWS)
            np.testing.assert_array_equal((await file.read("rows")).to_dense(), ROWS)
            part = await file.read_slice("rows", np.s_[5:9, ::3])
            np.testing.assert_array_equal(part, ROWS[5:9, ::3])
            cut: Any = await file.read_slice("q", slice(8, 16))
            np.testing.assert_array_equal(cut.dequantize(), QUANTIZED.dequantize()[8:16])
            parts = await file.read_slices({"rows": 3, "s": slice(0, 1)})
            np.testing.assert_array_equal(parts["rows"], ROWS[3])
            assert (await file.verify()).ok
            assert (await file.verify(["rows"], deep=True)).ok
            assert await file.run(lambda reader: reader.attributes) == {}
            assert (await file.run(ztensor.Reader.get_slice, "rows")).shape == (600, 40)
        loaded = await aio.load_file(tmp_path / "a.zt", only="r*")
        assert list(loaded) == ["rows"]

    run(work())


def test_many_tasks_read_at_once() -> None:
    async def work() -> Any:
        async with await aio.open(STORED, workers=8) as file:
            return await asyncio.gather(*(file.read_slice("rows", row) for row in range(300)))

    np.testing.assert_array_equal(np.stack(run(work())), ROWS[:300])


def test_the_loop_goes_on_while_a_file_is_opened_and_read() -> None:
    slow = Slow(STORED)

    async def ticks(task: asyncio.Task[Any]) -> int:
        count = 0
        while not task.done():
            await asyncio.sleep(0.001)
            count += 1
            if count == 20:
                slow.may_read.set()
        return count

    async def work() -> None:
        slow.may_read.clear()
        opening = asyncio.create_task(aio.open(slow))
        assert await ticks(opening) >= 20
        async with await opening as file:
            slow.may_read.clear()
            reading = asyncio.create_task(file.read_numpy("rows"))
            assert await ticks(reading) >= 20
            np.testing.assert_array_equal(await reading, ROWS)

    run(work())


def test_a_cancelled_read_does_no_harm_and_closing_waits() -> None:
    slow = Slow(STORED)

    async def work() -> None:
        file = await aio.open(slow, workers=1)
        slow.may_read.clear()
        slow.is_read.clear()
        first, second, third = (asyncio.create_task(file.read_numpy("rows")) for _ in range(3))
        await asyncio.to_thread(slow.is_read.wait)
        first.cancel()  # it runs
        second.cancel()  # it waits
        for task in (first, second):
            with pytest.raises(asyncio.CancelledError):
                await task
        closing = asyncio.create_task(file.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        with pytest.raises(ClosedError):
            await file.read_numpy("rows")
        slow.may_read.set()
        await closing
        np.testing.assert_array_equal(await third, ROWS)
        await file.close()
        assert file.reader.objects.is_closed

    run(work())


def test_a_cancelled_opening_closes_what_it_opened() -> None:
    slow = Slow(STORED)

    async def work() -> None:
        slow.may_read.clear()
        slow.is_read.clear()
        opening = asyncio.create_task(aio.open(slow))
        await asyncio.to_thread(slow.is_read.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        slow.may_read.set()

    before = threading.active_count()
    run(work())
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before  # its thread has ended


def test_errors_are_those_of_the_reader(tmp_path: Path) -> None:
    damaged = bytearray(STORED)
    damaged[STORED.index(ROWS.tobytes()) + 5000] ^= 1

    async def work() -> None:
        with pytest.raises(SourceNotFoundError):
            await aio.open(tmp_path / "none.zt")
        with pytest.raises(ztensor.FormatError):
            await aio.open(b"no file of ours")
        with pytest.raises(ArgumentTypeError):
            await aio.open(STORED, verfy=True)  # type: ignore[call-arg]
        with pytest.raises(ArgumentTypeError):
            await aio.load_file(STORED, verfy=True)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="workers"):
            await aio.open(STORED, workers=0)
        async with await aio.open(bytes(damaged)) as file:
            with pytest.raises(ObjectNotFoundError):
                await file.read("none")
            with pytest.raises(ArgumentValueError):
                await file.read_slice("rows", 600)
            assert not (await file.verify()).ok
        async with await aio.open(bytes(damaged), verify=True) as file:
            with pytest.raises(DigestMismatchError):
                await file.read_numpy("rows")

    run(work())


def test_a_file_on_disk_is_read_in_the_thread(tmp_path: Path) -> None:
    save_file({"rows": ROWS}, tmp_path / "a.zt")

    async def work() -> Any:
        async with await aio.open(tmp_path / "a.zt") as file:
            return await file.read_slice("rows", slice(0, 5))

    part = run(work())
    (tmp_path / "a.zt").write_bytes(b"")  # nothing is mapped
    np.testing.assert_array_equal(part, ROWS[:5])
