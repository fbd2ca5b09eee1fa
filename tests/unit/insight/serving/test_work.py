from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ztensor.insight.serving.work import AT_ONCE, WAITING, Job, StoppedError, Workers


async def stays() -> bool:
    return False


async def leaves() -> bool:
    return True


def until_ended(job: Job) -> None:
    while True:
        job.check()
        time.sleep(0.01)


def test_it_ends_when_nobody_waits_or_it_takes_too_long() -> None:
    def hidden(job: Job) -> None:
        try:
            until_ended(job)
        except StoppedError as error:
            raise ValueError("another one") from error

    workers = Workers()
    assert asyncio.run(workers.run(lambda _: 3, stays)) == 3
    with pytest.raises(ZeroDivisionError):
        asyncio.run(workers.run(lambda _: 1 // 0, stays))
    assert workers.count == 0
    with pytest.raises(StoppedError, match="gone"):
        asyncio.run(workers.run(until_ended, leaves))
    with pytest.raises(StoppedError, match="choose a smaller part"):
        asyncio.run(workers.run(until_ended, stays, 0.1))
    with pytest.raises(StoppedError, match="more than"):
        asyncio.run(workers.run(hidden, stays, 0.1))
    workers.close()


@pytest.mark.slow
def test_two_at_once_and_sixteen_that_wait() -> None:
    workers, release, most, now = Workers(), threading.Event(), [0], [0]
    lock = threading.Lock()

    def work(_: Job) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        release.wait(10)
        with lock:
            now[0] -= 1

    async def many() -> list[BaseException | None]:
        tasks = [
            asyncio.create_task(workers.run(work, stays)) for _ in range(AT_ONCE + WAITING + 5)
        ]
        await asyncio.sleep(0.3)
        release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(many())
    refused = [one for one in results if isinstance(one, StoppedError)]
    assert len(refused) == 5
    assert "too much" in str(refused[0])
    assert most[0] == AT_ONCE
    workers.close()
