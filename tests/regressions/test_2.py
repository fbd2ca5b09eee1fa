"""Found by the fuzzer and the property tests while the core was built."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import Reason
from ztensor.numpy import save
from ztensor.testing.builder import build, draft, zstd_frame


@pytest.mark.parametrize(
    ("fields", "content"),
    [({"dtype": "f32"}, b"12345"), ({"dtype": "f32", "type": "complex64"}, b"123456789012")],
    ids=["storage", "compound"],
)
def test_decoded_bytes_that_end_inside_an_element(fields: dict[str, str], content: bytes) -> None:
    """For an unknown layout, whose size is open, NumPy's own ValueError came through."""
    new = draft("1.2.0")
    part = ({**fields, "encoding": "zstd"}, zstd_frame(content))
    new.add("later", [3], {"part": part}, format="of_tomorrow")
    with ztensor.open(new.to_bytes()) as reader:
        with pytest.raises(ztensor.errors.LayoutError) as refused:
            reader.read("later")
        assert refused.value.reason is Reason.SIZE_MISMATCH
        assert refused.value.component == "part"
        (problem,) = reader.verify().problems
        assert problem.reason is Reason.SIZE_MISMATCH


@pytest.mark.parametrize(
    ("dtype", "most"),
    [("float16", 65504), ("float32", 3.4e38), ("float64", 1.7e308), ("bfloat16", 3.3e38)],
)
def test_adding_values_at_one_position_warns_of_nothing(dtype: str, most: float) -> None:
    """An overflow or a NaN is the file's value, and no RuntimeWarning of ours."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.array([most, most, np.inf, -np.inf], kind)
    tensor = ztensor.Tensor.coo(values, [[0, 0, 1, 1]], (2,))
    dense = tensor.to_dense().astype(np.float64)
    assert np.isposinf(dense[0])
    assert np.isnan(dense[1])


def test_an_odd_number_of_packed_elements_comes_back_without_padding() -> None:
    array = np.array([0.5, -6, 1], ml_dtypes.float4_e2m1fn)
    with ztensor.open(save({"w": array})) as reader:
        for copy in (False, True):
            (data,) = reader.read("w", copy=copy).components.values()
            assert data.dtype == array.dtype
            assert data.tobytes() == array.tobytes()


def test_damage_to_the_commit_record_does_not_switch_off_its_check() -> None:
    """One wrong byte in the record made it look like another writer's field."""
    data = build("1.2.0")
    at = data.rindex(b"commit")
    for place in range(at, len(data) - 16):
        with pytest.raises(ztensor.FormatError):
            ztensor.open(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def test_half_a_compound_element_is_seen_when_the_file_is_opened() -> None:
    new = draft("1.2.0")
    new.component("rows", "values").update(
        {"type": "complex64", "encoding": "zstd", "uncompressed_length": 28}
    )
    new.blobs["rows", "values"] = zstd_frame(bytes(24))
    with pytest.raises(ztensor.errors.ManifestError) as refused:
        ztensor.open(new.to_bytes())
    assert refused.value.reason is Reason.SIZE_MISMATCH


def test_verifying_compares_the_declared_length_as_reading_does() -> None:
    """The row pointers ask for three values; four are declared and three are there."""
    new = draft("1.2.0")
    for role, width in (("values", 4), ("indices", 8)):
        data = new.blobs["rows", role]
        new.blobs["rows", role] = zstd_frame(data)
        fields = {"encoding": "zstd", "uncompressed_length": len(data) + width}
        new.component("rows", role).update(fields)
    with ztensor.open(new.to_bytes()) as reader:
        with pytest.raises(ztensor.errors.EncodingError) as refused:
            reader.read("rows")
        assert refused.value.reason is Reason.SIZE_MISMATCH
        report = reader.verify(["rows"])
        assert {problem.reason for problem in report.problems} == {Reason.SIZE_MISMATCH}
