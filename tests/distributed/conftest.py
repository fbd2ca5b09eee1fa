"""The process that forks others, started once for each process of tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.distributed.processes import Processes

if importlib.util.find_spec("torch") is None:  # doctests are looked for in every module
    collect_ignore = ["shares.py", "states.py", "suite.py", "tasks.py", "values.py"]


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Give what runs functions in several processes."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    dist = pytest.importorskip("torch.distributed")
    pytest.importorskip("safetensors", reason="torch's writer of safetensors is beside ours")
    if not dist.is_gloo_available():
        pytest.skip("this build of PyTorch has no gloo")
    from tests.distributed.processes import Processes

    with Processes() as held:
        yield held
