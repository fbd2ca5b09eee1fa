"""Hypothesis profiles, and what holds for every run.

The profile is short by default and long where whole tables are asked for: `tests/extent.py`.
"""

from __future__ import annotations

import gc
import os

# Before NumPy and torch are loaded, here and in processes that tests start: there is a process of
# tests for each core, and threads of linear algebra that wait for one another keep cores busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.extent import IS_FULL

# No deadline: a shared machine is slow now and then, and pytest's timeout notices a hang.
# A blob is printed, so that a failure on another machine can be repeated here.
COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ztensor", COMMON, max_examples=1000 if IS_FULL else 20)
settings.load_profile("ztensor")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off what lives as long as the process.

    That is a million objects: the tests and the frameworks they import. Without this a collection
    takes a second, and tests that make many objects start hundreds of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that are others in another process: workers must agree on them."""
    if strange := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"`ids=shown` of tests/naming.py names it without address: {strange}"
        )
