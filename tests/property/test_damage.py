"""Damaged files: the original values, or an error of our family; never anything else, never slowly.

The files have digests everywhere their version has a place for them. So the checks are strong:
with a manifest's digest (1.1 and 1.2 as we write them) a file that still verifies holds exactly
what was written. 0.1 has no digest of its manifest: there, damage to the manifest may change any
object, and only the promise holds.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ztensor
from tests.extent import amount, sample
from tests.tracing import traced
from ztensor.numpy import save
from ztensor.testing import strategies
from ztensor.testing.builder import RULES, VERSIONS, build, draft
from ztensor.testing.damage import Damage, damaged, random_damage
from ztensor.testing.promise import Outcome, exercise

MIB = 1 << 20
LIMITS = ztensor.Limits(decoded_bytes=4 * MIB)


def contents(version: str) -> dict[str, Any]:
    tensors: dict[str, Any] = {
        "weight": np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6),
        "step": np.array(7, np.int64),
        "mask": np.array([True, False, True]),
        "half": np.arange(9).astype(ml_dtypes.bfloat16),
    }
    if version != "0.1.0":
        tensors["rows"] = ztensor.Tensor.csr(
            np.array([1.5, -2, 3], np.float16), [0, 3, 1], [0, 2, 2, 3], (3, 4)
        )
        tensors["points"] = ztensor.Tensor.coo(np.array([1, 2]), [[0, 2], [1, 0]], (3, 2))
        tensors["groups"] = ztensor.Tensor.quantize(np.ones((8, 2), np.float32), group_size=4)
        tensors["small"] = np.ones(3, ml_dtypes.float8_e4m3fn)
    return tensors


KINDS: list[tuple[str, bool | str]] = [
    *((version, compression) for version in VERSIONS for compression in (False, True)),
    ("1.2.0", "planes"),
]
WEIGHTS = {"weights": np.random.default_rng(3).normal(0, 0.02, (40, 30)).astype("f4")}
FILES = {
    (version, compression): save(
        {**contents(version), **(WEIGHTS if compression == "planes" else {})},
        {} if version == "0.1.0" else {"origin": "test"},
        version=version,
        compression=compression,
    )
    for version, compression in KINDS
}


def held(data: bytes) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return name and role to type, shape and bits of everything in a good file."""
    return facts(exercise(data, keep=True))


def facts(outcome: Outcome) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        key: (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        for key, array in outcome.arrays.items()
    }


def is_sealed(data: bytes) -> bool:
    """Return whether the manifest has its digest; damage in several places can take it away."""
    with ztensor.open(data) as reader:
        return reader.objects.parts()[0].manifest.commit is not None


HELD = {key: held(data) for key, data in FILES.items()}


def places(original: bytes, kind: Callable[[int], str]) -> list[int]:
    """Return the bytes of a file to be damaged: the first and the last, and some of each kind."""
    ends = range(len(original))
    chosen = {*ends[:8], *ends[-24:], *sample(ends, 3, kind)}
    return sorted(chosen)


@pytest.mark.parametrize(("version", "compression"), KINDS)
@given(damages=strategies.damages())
def test_any_damage(version: str, compression: bool | str, damages: list[Damage]) -> None:
    original = FILES[version, compression]
    data = damaged(original, damages)
    outcome = exercise(data, limits=LIMITS, keep=True)
    if data == original:
        assert outcome.verified
    if outcome.verified and is_sealed(data):
        assert facts(outcome) == HELD[version, compression]


@pytest.mark.parametrize(("version", "compression"), KINDS)
def test_every_byte_flipped(version: str, compression: bool | str) -> None:
    """One byte after another, all of them in the full form; only padding can change unnoticed."""
    original = FILES[version, compression]
    used = np.zeros(len(original), bool)
    kinds = np.full(len(original), "padding", "<U30")
    with ztensor.open(original) as reader:
        for metadata in reader.metadata(reader.keys()):
            for role, component in metadata.components.items():
                blob = slice(component.offset, component.offset + component.length)
                used[blob] = True
                kinds[blob] = f"{metadata.name} {role}"
        frame = reader.objects.parts()[0].frame
        assert frame is not None
        manifest = frame.manifest_offset
    used[:8] = True
    used[manifest:] = True
    for at in range(manifest, len(original)):
        kinds[at] = f"manifest {(at - manifest) // 48}"
    for at in places(original, lambda at: str(kinds[at])):
        data = damaged(original, [Damage("flip", at, value=at)])
        outcome = exercise(data, limits=LIMITS, keep=True)
        if not used[at]:
            assert outcome.verified
        elif version != "0.1.0" or at < manifest:
            assert not outcome.verified


@pytest.mark.parametrize(("version", "compression"), KINDS)
def test_cut_anywhere(version: str, compression: bool | str) -> None:
    original = FILES[version, compression]
    for length in places(original, lambda at: f"{at // 64}"):
        assert not exercise(original[:length], limits=LIMITS).opened


@pytest.mark.parametrize("version", VERSIONS)
@given(
    damages=strategies.damages(),
    broken=st.sampled_from([None, *RULES]),
    other=st.sampled_from(VERSIONS),
    cut=st.integers(0, 3000),
    joint=st.integers(0, 3000),
    how=st.sampled_from(["damage", "join"]),
)
def test_broken_files_damaged_more(
    version: str,
    damages: list[Damage],
    broken: str | None,
    other: str,
    cut: int,
    joint: int,
    how: str,
) -> None:
    """Files that are wrong already, and files put together from two."""
    if broken is not None and version not in RULES[broken].versions:
        broken = None
    data = build(version, broken=broken)
    data = damaged(data, damages) if how == "damage" else data[:cut] + build(other)[joint:]
    exercise(data, limits=LIMITS, threads=2)


@given(data=st.binary(max_size=400), magic=st.sampled_from([b"ZTEN0001", b"ZTEN1000", b""]))
def test_any_bytes(data: bytes, magic: bytes) -> None:
    body = magic + data
    for tail in (b"", len(data).to_bytes(8, "little"), len(data).to_bytes(8, "little") + magic):
        exercise(body + tail, limits=LIMITS)


def test_every_source_refuses_alike(tmp_path: Path) -> None:
    """Mapped, read through a file object, or in memory: the same values, the same refusals."""
    path = tmp_path / "damaged.zt"
    for data in batch(amount(60, full=200), seed=3):
        path.write_bytes(data)
        expected = exercise(data, limits=LIMITS, keep=True)
        for source in (path, io.BytesIO(data)):
            outcome = exercise(source, limits=LIMITS, keep=True)
            assert outcome.refusals == expected.refusals
            assert (outcome.opened, outcome.verified) == (expected.opened, expected.verified)
            assert facts(outcome) == facts(expected)


# --- Time and memory ------------------------------------------------------------------------


def batch(count: int, seed: int) -> list[bytes]:
    random = Random(seed)
    files = list(FILES.values())
    cases = []
    for _ in range(count):
        data = files[random.randrange(len(files))]
        cases.append(damaged(data, [random_damage(random, len(data)) for _ in range(2)]))
    return cases


@pytest.mark.slow
def test_a_batch_within_time_and_memory() -> None:
    """Traced memory stays within 64 MiB beyond what is returned; no case takes a second."""
    for data in batch(400, seed=1):
        start = time.process_time()
        with traced() as memory:
            outcome = exercise(data, limits=LIMITS)
            peak = memory()[1]
        assert time.process_time() - start < 1
        assert peak <= 64 * MIB + outcome.largest


GREEDY: dict[str, dict[str, Any]] = {
    "shape": {"shape": [1 << 40]},
    "dimensions": {"shape": [1 << 31, 1 << 31]},
    "rank": {"shape": [1] * 10_000},
    "length": {"length": 1 << 62},
    "offset": {"offset": (1 << 64) - 64},
    "decoded": {"uncompressed_length": 1 << 40, "encoding": "zstd"},
}

LIMITED = """
import json, resource, sys
from ztensor.testing.promise import exercise

exercise(bytes.fromhex(sys.stdin.readline()))  # imports the lazy modules
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
opened = 0
for line in sys.stdin:
    opened += exercise(bytes.fromhex(line)).opened
print(json.dumps({"opened": opened}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded as Linux does it")
def test_a_batch_in_64_mib_of_address_space() -> None:
    """With default limits, too: no number in a file decides an allocation."""
    cases = [build("1.2.0"), *FILES.values(), *batch(1500, seed=2)]
    cases += [greedy(fields) for fields in GREEDY.values()]
    for version in VERSIONS:
        cases += [build(version, broken=name) for name in RULES if version in RULES[name].versions]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIMITED],
        input="\n".join(case.hex() for case in cases),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads(run.stdout)["opened"] >= len(FILES)


def greedy(fields: dict[str, Any]) -> bytes:
    """Return a good file but for one object that asks for too much."""
    new = draft("1.2.0")
    for field, value in fields.items():
        target = new.objects["matrix"] if field == "shape" else new.component("matrix")
        target[field] = value
    return new.to_bytes()
