"""The writer's bytes are those of the golden files; their README says how they are made."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.golden import make, table

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = make.VERSIONS
MADE = make.binary_files()
DESCRIBED = make.kept()


def test_each_case_is_described() -> None:
    assert DESCRIBED.keys() == table.CASES.keys()


# torch says so where it saves without processes.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.parametrize("name", table.CASES)
def test_every_writer_writes_the_same_bytes(name: str) -> None:
    if library := table.missing(name):
        pytest.skip(f"{library} is not installed")
    old, new = DESCRIBED[name], make.described(name)
    difference = difflib.unified_diff(old, new, "golden", "now", n=1, lineterm="")
    assert old == new, "\n".join(["see tests/golden/README.md", *difference])


def test_golden_files_are_small() -> None:
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.suffix != ".py") < 400_000


def test_each_file_is_made() -> None:
    assert {path.name for path in GOLDEN.glob("*.zt")} == set(MADE)


@pytest.mark.parametrize("version", VERSIONS)
def test_raw_files_are_the_same_to_the_byte(version: str) -> None:
    name = f"{version}-raw.zt"
    assert MADE[name] == (GOLDEN / name).read_bytes(), (
        "the writer's bytes changed; where that is meant, see tests/golden/README.md"
    )


def structure(reader: ztensor.Reader) -> dict[str, Any]:
    """Return everything a manifest says but what depends on how well bytes were compressed."""
    return {
        name: (
            metadata.shape,
            metadata.format,
            dict(metadata.attributes),
            [
                (role, part.dtype, part.type, part.encoding, part.uncompressed_length)
                for role, part in metadata.components.items()
            ],
        )
        for name, metadata in zip(reader, reader.metadata(reader.keys()), strict=True)
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_files_have_the_same_structure_and_values(version: str) -> None:
    name = f"{version}-zstd.zt"
    with ztensor.open(GOLDEN / name) as old, ztensor.open(MADE[name]) as new:
        assert list(structure(new).items()) == list(structure(old).items())  # the order, too
        assert (new.version, new.attributes) == (old.version, old.attributes)
        for key in old:
            parts = old.read(key).components
            for role, array in new.read(key).components.items():
                assert array.dtype == parts[role].dtype
                assert array.tobytes() == parts[role].tobytes()


@pytest.mark.parametrize("name", MADE)
def test_golden_files_hold_what_was_written(name: str) -> None:
    """Files of an older release stay readable, whatever becomes of the writer."""
    tensors, attributes = make.contents(name.partition("-")[0])
    with ztensor.open(GOLDEN / name) as reader:
        assert reader.verify().ok
        assert reader.attributes == attributes
        assert set(reader) == set(tensors)
        for key, written in tensors.items():
            value = make.repeated(written) if name.endswith("-zstd.zt") else written
            tensor = value if isinstance(value, ztensor.Tensor) else ztensor.Tensor(value)
            read = reader.read(key)
            assert read.shape == tensor.shape
            assert read.attributes == tensor.attributes
            for role, array in tensor.components.items():
                flat = np.asarray(array).reshape(-1)
                assert read.components[role].dtype == flat.dtype
                assert read.components[role].tobytes() == flat.tobytes()
