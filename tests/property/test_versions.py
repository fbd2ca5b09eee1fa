"""Any object we can hold, from version to version and back: equal, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ztensor
from ztensor.errors import NotRepresentableError
from ztensor.ext import EMITTERS
from ztensor.numpy import save_file
from ztensor.testing import strategies

if TYPE_CHECKING:
    import pytest

pytestmark = pytest.mark.slow

VERSIONS = tuple(EMITTERS)


def saved(tensors: dict[str, Any], path: Path, version: str, **options: Any) -> list[str]:
    """Save the tensors that a version can hold; return the names of the others."""
    refused = []
    for name, tensor in tensors.items():
        try:
            save_file({name: tensor}, path, version=version)
        except NotRepresentableError:
            refused.append(name)
    kept = {name: tensor for name, tensor in tensors.items() if name not in refused}
    save_file(kept, path, version=version, **options)
    return refused


@settings(max_examples=40)
@given(data=st.data())
def test_any_object_goes_round(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("versions")
    first = data.draw(st.sampled_from(VERSIONS))
    said = first if first in strategies.TYPES_OF else strategies.LATEST
    tensors = data.draw(strategies.dicts(said))
    path = folder / "0.zt"
    refused = saved(tensors, path, first, compression=data.draw(st.booleans()))
    assert first not in strategies.TYPES_OF or not refused
    expected = ztensor.insight.tensor_hashes(path, attributes=True)
    assert set(expected) == set(tensors) - set(refused)
    chain = data.draw(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=3))
    for number, version in enumerate([*chain, first]):
        target = folder / f"{number + 1}.zt"
        compression = data.draw(st.sampled_from([None, None, True, False]))
        names = set(expected)
        try:
            report = ztensor.convert(
                path, target, version=version, check=True, compression=compression
            )
        except NotRepresentableError:  # the version can hold no tensor of the file
            return
        for lost in report.lost:
            assert lost.object_name in names
            expected.pop(str(lost.object_name), None)
        found = ztensor.insight.tensor_hashes(target, attributes=True)
        assert set(expected) <= set(found) <= names
        assert {name: found[name] for name in expected} == expected
        if report.lost:
            try:
                ztensor.convert(path, folder / "strict.zt", version=version, strict=True)
            except NotRepresentableError:
                assert not (folder / "strict.zt").exists()
            else:
                raise AssertionError(report.lost)
        with ztensor.open(target) as reader:
            assert reader.verify(deep=True).outcome != "damaged"
        expected, path = {name: found[name] for name in found}, target
