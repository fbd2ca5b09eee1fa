from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_pt import (
    HOOKS,
    SIX,
    archive,
    call,
    group,
    hostile,
    legacy,
    mapping,
    named,
    number,
    numbers,
    pickled,
    storage,
    tensor,
    text,
    zipped,
)
from tests.extent import amount
from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError
from ztensor.limits import Limits
from ztensor.testing.promise import exercise

CORPUS = Path(__file__).parents[2] / "corpus" / "foreign"
ACCEPT, REJECT = CORPUS / "accept" / "pt", CORPUS / "reject" / "pt"
EXPECTED = json.loads((ACCEPT / "expected.json").read_text())
REASONS = json.loads((REJECT / "expected.json").read_text())
SIX_ARRAY = np.frombuffer(SIX, "<f4")
MANY = amount(80, full=800)  # mutations of each file
SMALL = Limits(decoded_bytes=1 << 24)


def opened(body: bytes, **options: Any) -> ztensor.Reader:
    return ztensor.open(archive(body, **options))


# --- The committed files --------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("mmap", [True, False])
def test_golden_files(name: str, mmap: bool) -> None:
    with ztensor.open(ACCEPT / name, mmap=mmap) as reader:
        assert reader.format == "pt"
        assert list(reader) == list(EXPECTED[name])
        for key, value in EXPECTED[name].items():
            array = reader[key]
            assert array.shape == tuple(value["shape"])
            assert array.dtype.name == value["dtype"]
            assert array.tobytes().hex() == value["hex"]
        assert not reader.verify().problems


def test_golden_attributes() -> None:
    with ztensor.open(ACCEPT / "checkpoint.pt") as reader:
        assert reader.version == "3"
        assert reader.attributes["epoch"] == 3
        assert reader.attributes["note"] == "small"
        assert reader.attributes["optimizer.param_groups"][0]["betas"] == [0.9, 0.999]
        assert reader.attributes["model._metadata"]["1"] == {"version": 2}


@pytest.mark.slow
def test_hostile_files_are_those_of_the_script() -> None:
    made = hostile()
    assert {f"{name}.pt": reason for name, (_, reason) in made.items()} == REASONS
    for name, (data, _) in made.items():
        assert (REJECT / f"{name}.pt").read_bytes() == data


def test_torchscript_says_what_to_do() -> None:
    with refused(UnsupportedError, Reason.PICKLE_CALL) as caught:
        ztensor.open(REJECT / "torchscript.pt")
    assert caught.value.hint is not None


# --- Places of elements ---------------------------------------------------------------------


def test_contiguous_tensors_are_ranges_and_views(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    body = mapping(whole=tensor(), row=tensor((3,), (1,), 3), twin=tensor())
    path.write_bytes(archive(body))
    with ztensor.open(path) as reader:
        place = reader.location("whole")
        assert path.read_bytes()[place.offset : place.offset + place.length] == SIX
        assert reader.location("row") == (place.path, place.offset + 12, 12)
        assert reader.location("twin") == place
        assert np.shares_memory(reader["whole"], reader["whole"])
        np.testing.assert_array_equal(reader["row"], SIX_ARRAY[3:])
        np.testing.assert_array_equal(reader.get_slice("whole")[1:, 1:], [[4, 5]])


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((3, 2), (1, 3), 0),
        ((2,), (3,), 1),
        ((2, 2), (2, 2), 1),
        ((4, 6), (0, 1), 0),
        ((5,), (0,), 5),
        ((1, 3, 1), (100, 2, 7), 1),
        ((2, 2, 2), (1, 1, 1), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_other_strides_are_gathered(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, method: int
) -> None:
    reader = opened(mapping(a=tensor(size, stride, offset)), method=method)
    expected = np.ndarray(size, "<f4", SIX, offset * 4, tuple(4 * step for step in stride))
    np.testing.assert_array_equal(reader["a"], expected)
    np.testing.assert_array_equal(reader.get_slice("a")[1:], expected[1:])
    assert b"".join(map(bytes, reader.decoded_chunks("a"))) == expected.tobytes()
    assert not reader.verify().problems


def test_a_column_of_a_wide_matrix_is_read() -> None:
    wide = np.arange(5 * 20_000, dtype="<f4")
    body = tensor((5,), (20_000,), 3, of=storage(count=wide.size))
    reader = opened(body, storages={"0": wide.tobytes()})
    np.testing.assert_array_equal(reader["tensor"], wide[3::20_000])


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((6,), (1,), 0), ((0, 3), (3, 1), 0), ((2, 0), (1, 1), 6), ((), (), 5),
     ((1, 1, 6), (9, 9, 1), 0)],
    ids=str,
)  # fmt: skip
def test_contiguous_tensors_are_raw(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    reader = opened(mapping(a=tensor(size, stride, offset)))
    assert reader.metadata("a").components["data"].encoding == "raw"
    assert reader["a"].shape == size


def test_a_deflated_archive_is_read_and_checked() -> None:
    data = bytearray(archive(mapping(a=tensor()), method=zipfile.ZIP_DEFLATED))
    reader = ztensor.open(bytes(data))
    np.testing.assert_array_equal(reader["a"], SIX_ARRAY.reshape(2, 3))
    place = reader.location("a")
    data[place.offset : place.offset + place.length] = b"\xff" * place.length
    with refused(FormatError, Reason.ENCODING_MALFORMED):
        ztensor.open(bytes(data))["a"]


def test_a_repeated_element_cannot_fill_the_memory() -> None:
    reader = opened(mapping(a=tensor((1 << 40,), (0,)), b=tensor((1 << 14,), (0,))))
    assert reader["b"].shape == (1 << 14,)
    with refused(LimitError, Reason.LIMIT_DECODED):
        reader["a"]
    assert reader.verify().unsupported


def test_unknown_element_types_do_not_hide_their_siblings() -> None:
    typed = call(
        "torch._utils._rebuild_tensor_v3",
        storage(kind="torch.storage.UntypedStorage", count=24),
        *(number(0), numbers((4,)), numbers((1,)), b"\x89", HOOKS, named("torch.int4")),
    )
    reader = opened(mapping(strange=typed, plain=tensor()))
    assert reader.metadata("strange").dtype == "torch.int4"
    with refused(UnsupportedError, Reason.UNKNOWN_DTYPE):
        reader["strange"]
    assert reader["plain"].shape == (2, 3)


# --- Names and attributes -------------------------------------------------------------------


def test_a_lone_tensor_is_called_tensor() -> None:
    assert list(opened(tensor())) == ["tensor"]
    assert list(ztensor.open(legacy(tensor()))) == ["tensor"]


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        (number(5), {"value": 5}),
        (b"](NNe", {"value": [None, None]}),
        (mapping(a=number(1 << 70), b=b"]"), {"a": "0x400000000000000000", "b": []}),
        (mapping(a=call("torch.device", text("cuda"), number(1))), {"a": "cuda:1"}),
        (mapping(a=named("torch.float32")), {"a": "torch.float32"}),
        (mapping(a=call("__builtin__.set", b"](K\1e")), {"a": [1]}),
        (b"}(K\1N\x88N(K\1K\2tNu", {"1": None, "True": None, "1,2": None}),
        (mapping(a=call("pathlib.PosixPath", text("/"), text("x"), text("y"))), {"a": "/x/y"}),
        (mapping(a=call("collections.defaultdict", named("os.system"))), {"a": {}}),
    ],
    ids=["number", "list", "large_number", "device", "dtype", "set", "keys", "path", "factory"],
)  # fmt: skip
def test_other_values_become_attributes(body: bytes, attributes: dict[str, Any]) -> None:
    reader = opened(body)
    assert len(reader) == 0
    assert reader.attributes == attributes


def test_nested_names_are_joined_and_plain_values_stay_beside_them() -> None:
    nested = mapping(inner=b"](" + tensor() + number(7) + b"e", empty=b"}")
    reader = opened(mapping(model=nested, epoch=number(3)))
    assert list(reader) == ["model.inner.0"]
    assert reader.attributes == {"model.inner.1": 7, "model.empty": {}, "epoch": 3}


def test_attributes_of_a_parameter_are_those_of_its_object() -> None:
    state = mapping(decay=number(2))
    made = call("torch._utils._rebuild_parameter_with_state", tensor(), b"\x88", HOOKS, state)
    assert opened(mapping(a=made)).metadata("a").attributes == {"decay": 2}


def test_a_legacy_file_longer_than_the_first_read() -> None:
    body = mapping(note=text("x" * 100_000), a=tensor())
    reader = ztensor.open(legacy(body))
    assert len(reader.attributes["note"]) == 100_000
    np.testing.assert_array_equal(reader["a"], SIX_ARRAY.reshape(2, 3))
    with refused(LimitError, Reason.LIMIT_MANIFEST):
        ztensor.open(legacy(body), limits=Limits(manifest_bytes=90_000))


def test_a_pickle_longer_than_the_limit_is_refused() -> None:
    with refused(LimitError, Reason.LIMIT_MANIFEST):
        ztensor.open(archive(text("x" * 5000)), limits=Limits(manifest_bytes=4000))


def test_a_part_of_a_legacy_storage() -> None:
    part = storage()[:-2] + b"(" + text("9") + number(2) + number(3) + b"ttQ"
    reader = ztensor.open(legacy(tensor((3,), (1,), of=part)))
    np.testing.assert_array_equal(reader["tensor"], [2, 3, 4])


def rebuilt(kind: str, *parts: bytes) -> bytes:
    return call(f"torch._utils._rebuild_{kind}", *parts)


def dtype_of(code: str) -> bytes:
    return call("numpy.dtype", text(code), b"\x89", b"\x88")


def array_of(shape: tuple[int, ...], dtype: bytes, data: bytes) -> bytes:
    """Return an array of NumPy; `data` is the instruction that pushes its bytes."""
    return ARRAY + group(number(1), numbers(shape), dtype, b"\x89", data) + b"b"


def scalar_of(dtype: bytes, data: bytes) -> bytes:
    """Return a scalar of NumPy of fewer than 256 bytes."""
    return call("numpy.core.multiarray.scalar", dtype, b"C" + bytes((len(data),)) + data)


def quantized_by(scheme: bytes, of: bytes) -> bytes:
    return rebuilt("qtensor", of, *PLACE, scheme, b"N", b"N")


def scheme_of(name: str, *parts: bytes) -> bytes:
    return group(named(f"torch.{name}"), *parts)


F4, F16, U1 = map(dtype_of, ("f4", "f16", "U1"))
BIG = group(number(3), text(">")) + b"b"  # sets the byte order of a type
PARTS = group(tensor((2, 1), (1, 1)), tensor((1,), (1,)), numbers((4, 4)))
FLAT = tensor((6,), (1,))
QUANTIZED = storage(kind="torch.QInt8Storage", count=24)
INTEGERS = storage(kind="torch.IntStorage")
PLACE = number(0), numbers((2, 3)), numbers((3, 1))
ARRAY = call("numpy.core.multiarray._reconstruct", named("numpy.ndarray"), b"(K\0t", b"C\1b")
HALVES = array_of((1,), F16, b"C\x10" + bytes(16))
FLOATS = array_of((1,), F4, b"C\4abcd")
INT8, INT32 = named("torch.int8"), named("torch.int32")
CSR, COO, STRIDED = (named(f"torch.{name}") for name in ("sparse_csr", "sparse_coo", "strided"))
OF_TYPE = named("torch._utils._rebuild_tensor_v2"), named("torch.Tensor")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (F4 + b"Nb", Reason.FIELD_TYPE),
        (F4 + group(number(3), text("!")) + b"b", Reason.UNKNOWN_DTYPE),
        (scalar_of(dtype_of("f3"), b"abc"), Reason.UNKNOWN_DTYPE),
        (scalar_of(F16, bytes(16)), Reason.UNKNOWN_DTYPE),
        (scalar_of(U1, b"\0\xd8\0\0"), Reason.FIELD_TYPE),
        (scalar_of(F4, b"x"), Reason.FIELD_TYPE),
        (ARRAY, Reason.FIELD_TYPE),
        (ARRAY + b"Nb", Reason.FIELD_TYPE),
        (array_of((2,), F4, b"C\1x"), Reason.SIZE_MISMATCH),
        (array_of((2,), F4, b"N"), Reason.FIELD_TYPE),
        (array_of((2,), b"N", b"N"), Reason.FIELD_TYPE),
        (rebuilt("parameter", b"N", b"\x88", HOOKS), Reason.FIELD_TYPE),
        (
            rebuilt("parameter_with_state", tensor(), b"\x88", HOOKS, number(1)),
            Reason.FIELD_TYPE,
        ),
        (tensor()[:-2] + b"NNtR", Reason.FIELD_VALUE),
        (tensor()[:-2] + number(5) + b"tR", Reason.FIELD_TYPE),
        (tensor()[:-2] + mapping(other=b"\x88") + b"tR", Reason.UNKNOWN_TYPE),
        (tensor(of=INTEGERS)[:-2] + mapping(neg=b"\x88") + b"tR", Reason.UNKNOWN_TYPE),
        (
            rebuilt("meta_tensor_no_storage", named("torch.odd"), numbers(()), numbers(())),
            Reason.UNKNOWN_DTYPE,
        ),
        (rebuilt("device_tensor_from_cpu_tensor", tensor(), INT8, b"N"), Reason.FIELD_VALUE),
        (rebuilt("device_tensor_from_numpy", b"N", INT8, b"N"), Reason.FIELD_TYPE),
        (rebuilt("device_tensor_from_numpy", HALVES, INT8, b"N"), Reason.FIELD_TYPE),
        (rebuilt("device_tensor_from_numpy", FLOATS, INT32, b"N"), Reason.FIELD_VALUE),
        (rebuilt("sparse_tensor", STRIDED, PARTS), Reason.FIELD_TYPE),
        (rebuilt("sparse_tensor", CSR, PARTS), Reason.FIELD_TYPE),
        (rebuilt("sparse_tensor", COO, b"(NNNt"), Reason.FIELD_TYPE),
        (
            rebuilt("sparse_tensor", CSR, group(FLAT, FLAT, FLAT, numbers((5, 5)))),
            Reason.INDEX_DTYPE,
        ),
        (quantized_by(b"N", storage()), Reason.FIELD_TYPE),
        (quantized_by(b"N", QUANTIZED), Reason.FIELD_TYPE),
        (
            quantized_by(scheme_of("per_tensor_affine", number(1), number(1)), QUANTIZED),
            Reason.FIELD_TYPE,
        ),
        (
            quantized_by(scheme_of("per_channel_affine", tensor(), tensor(), number(2)), QUANTIZED),
            Reason.FIELD_TYPE,
        ),
        (
            call("torch._tensor._rebuild_from_type_v2", *OF_TYPE, group(storage(), *PLACE), b"N"),
            Reason.FIELD_TYPE,
        ),
        (call("collections.OrderedDict", b"](Ne"), Reason.FIELD_TYPE),
        (call("builtins.set", number(1)), Reason.FIELD_TYPE),
        (call("_codecs.encode", number(1), text("latin1")), Reason.FIELD_TYPE),
        (call("_codecs.encode", text("\u20ac"), text("latin1")), Reason.FIELD_TYPE),
        (call("builtins.bytes", number(1)), Reason.FIELD_TYPE),
        (call("torch.serialization._get_layout", number(1)), Reason.FIELD_TYPE),
        (call("torch.torch_version.TorchVersion", number(1)), Reason.FIELD_TYPE),
        (b"}" + group(b"]") + b"Ns", Reason.FIELD_TYPE),
    ],
)
def test_calls_with_wrong_values_are_refused(body: bytes, reason: Reason) -> None:
    data = archive(mapping(a=body), {"0": bytes(24)})
    with refused((FormatError, UnsupportedError), reason):
        ztensor.open(data)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (call("collections.OrderedDict", b"](" + group(text("k"), number(1)) + b"e"), {"k": 1}),
        (call("collections.Counter", mapping(k=number(2))), {"k": 2}),
        (call("builtins.bytes"), b""),
        (call("builtins.bytearray", text("\xff"), text("latin-1")), b"\xff"),
        (call("torch.Size", b"](K\1K\2e"), [1, 2]),
        (call("torch.torch_version.TorchVersion", text("2.0")), "2.0"),
        (call("builtins.range", number(1), number(2), number(3)), [1, 2, 3]),
        (call("builtins.complex", b"G" + bytes(8), b"G" + bytes(8)), {"real": 0.0, "imag": 0.0}),
        (F4, "float32"),
        (call("numpy.dtype", b"C\2f4") + BIG, ">f4"),
        (dtype_of("V8"), "V8"),
        (call("numpy.dtype", named("ml_dtypes.bfloat16")), "ml_dtypes.bfloat16"),
        (call("numpy.dtype", number(5)), "5"),
        (scalar_of(F4, b"\0\0\x80?"), 1.0),
        (scalar_of(U1, b"\xe4\0\0\0"), "\xe4"),
        (scalar_of(U1 + BIG, b"\0\0\0\xe4"), "\xe4"),
        (scalar_of(dtype_of("S2"), b"a\0"), b"a"),
        (call("pathlib._local.PosixPath", text("/"), text("x")), "/x"),
        (call("pathlib.PureWindowsPath", text("x"), text("y")), "x/y"),
        (call("collections.deque", b"](K\1K\2e"), [1, 2]),
        (call("collections.deque", b")", number(3)) + b"K\1a", [1]),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_calls_that_make_plain_values(body: bytes, value: object) -> None:
    assert opened(mapping(a=body)).attributes == {"a": value}


@pytest.mark.parametrize(
    "body",
    [
        rebuilt("tensor", storage(), *PLACE),
        rebuilt("parameter", tensor(), b"\x88", HOOKS),
        rebuilt("device_tensor_from_cpu_tensor", tensor(), named("torch.float32"), b"N"),
        call(
            "torch._tensor._rebuild_from_type_v2",
            OF_TYPE[0],
            named("torch.nn.parameter.Parameter"),
            group(storage(), *PLACE, b"\x88", HOOKS),
            group(b"}", b"}"),
        ),
    ],
    ids=["first", "parameter", "device", "from_type"],
)
def test_other_ways_to_say_a_tensor(body: bytes) -> None:
    reader = opened(mapping(a=body))
    np.testing.assert_array_equal(reader["a"], SIX_ARRAY.reshape(2, 3))
    assert reader.metadata("a").components["data"].encoding == "raw"


# --- Mutations ------------------------------------------------------------------------------


def mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(changed))
        kind = draw.randrange(5)
        if kind == 0:
            changed[at] = draw.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del changed[at : at + draw.randint(1, 16)]
        elif kind == 3:
            changed[at : at + 4] = struct.pack("<I", draw.choice([0, 1, 2**31 - 1, 2**32 - 1]))
        else:
            changed = changed[: draw.randrange(1, len(changed))] if draw.random() < 0.2 else changed
        changed = changed or bytearray(b"P")
    return bytes(changed)


@pytest.mark.parametrize("name", ["checkpoint.pt", "views.pt", "big_endian.pt"])
def test_mutated_pickles_keep_the_promise(name: str) -> None:
    with zipfile.ZipFile(ACCEPT / name) as file:
        members = {member: file.read(member) for member in file.namelist()}
    pickle_name = next(member for member in members if member.endswith("data.pkl"))
    draw = random.Random(name)
    reached = 0
    for _ in range(MANY):
        outcome = exercise(
            zipped(members | {pickle_name: mutated(members[pickle_name], draw)}), limits=SMALL
        )
        reached += outcome.opened
    assert 0 < reached < MANY


# --- torch as the judge ---------------------------------------------------------------------


@pytest.fixture
def torch() -> Iterator[Any]:
    found = pytest.importorskip("torch", reason="torch writes the files that are compared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its sparse and quantized tensors
        yield found


def saved(torch: Any, value: Any, **options: Any) -> ztensor.Reader:
    target = io.BytesIO()
    torch.save(value, target, **options)
    return ztensor.open(target.getvalue())


def bits(torch: Any, value: Any) -> bytes:
    value = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data: bytes = value.view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return data


DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8"),
    *("uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "turned": lambda x: x.T,
    "part": lambda x: x[1:, 1:3],
    "steps": lambda x: x[::2, ::3],
    "flat": lambda x: x.reshape(-1)[5:],
    "expanded": lambda x: x[:1].expand(5, 4),
    "scalar": lambda x: x[1, 1],
    "nothing": lambda x: x[3:],
}


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_and_view(torch: Any, dtype: str, is_zip: bool) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    kind = getattr(torch, dtype)
    width = torch.empty(0, dtype=kind).element_size()
    numbers_ = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, 12 * width)
    whole = torch.from_numpy(numbers_.astype(np.uint8)).view(kind).reshape(3, 4)
    views = {name: view(whole) for name, view in VIEWS.items()}
    reader = saved(torch, views, _use_new_zipfile_serialization=is_zip)
    assert list(reader) == list(views)
    for name, view in views.items():
        assert reader[name].shape == tuple(view.shape)
        assert reader[name].tobytes() == bits(torch, view)
        assert reader.read_torch(name).dtype == kind
    assert reader.location("whole").offset == reader.location("expanded").offset
    assert not reader.verify(["whole", "turned"]).problems


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_whole_checkpoint(torch: Any, protocol: int, is_zip: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model.append(torch.nn.Linear(2, 2, bias=False))
    model[2].weight = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model[:2](torch.ones(4, 3)).sum().backward()
    optimizer.step()
    value = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameters": dict(model.named_parameters()),
        "random": {"torch": torch.get_rng_state(), "numpy": np.random.RandomState(0).get_state()},
        "best": np.float64(0.5),
        "epoch": 3,
    }
    reader = saved(torch, value, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
    for name, parameter in model.state_dict().items():
        assert reader[f"model.{name}"].tobytes() == bits(torch, parameter)
    for name, _ in model.named_parameters():
        assert reader.location(f"parameters.{name}") == reader.location(f"model.{name}")
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    assert reader["optimizer.state.0.momentum_buffer"].tobytes() == bits(torch, momentum)
    assert reader["random.numpy.1"].tolist() == value["random"]["numpy"][1].tolist()
    assert reader.attributes["random.numpy.0"] == "MT19937"
    assert reader.attributes["optimizer.param_groups"][0]["momentum"] == 0.9
    assert reader.attributes["best"] == 0.5
    assert not reader.verify().problems


def test_numpy_arrays_in_the_pickle(torch: Any) -> None:
    arrays = {
        "plain": np.arange(6).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j]),
        "scalar": np.array(7, np.uint16),
        "nothing": np.empty((0, 3), np.float16),
    }
    for protocol in (2, 4, 5):
        reader = saved(torch, arrays, pickle_protocol=protocol)
        for name, array in arrays.items():
            np.testing.assert_array_equal(reader[name], array)
            assert reader[name].dtype == array.dtype.newbyteorder("=")


def test_conjugated_and_negated_views(torch: Any) -> None:
    values = [torch.tensor([1 + 2j, 3 - 4j]).conj() for _ in range(2)]
    for is_zip in (True, False):
        views = {"conj": values[0], "neg": values[1].imag}
        reader = saved(torch, views, _use_new_zipfile_serialization=is_zip)
        assert reader["conj"].tolist() == [1 - 2j, 3 + 4j]
        assert reader["neg"].tolist() == [-2, 4]


def test_sparse_tensors_of_other_layouts_are_kept_in_parts(torch: Any) -> None:
    dense = torch.eye(4)
    made = {
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "coo": dense.to_sparse(1),
    }
    reader = saved(torch, made)
    for name in made:
        assert reader.metadata(name).format == f"torch.sparse_{name}"
    values = reader.read("bsr").components["values"]
    assert reader.metadata("bsr").attributes["values_shape"] == [2, 2, 2]
    np.testing.assert_array_equal(values.reshape(2, 2, 2), made["bsr"].values().numpy())


def test_sparse_parts_that_disagree_are_refused() -> None:
    coordinates = tensor((2, 2), (2, 1), of=storage("1", "torch.LongStorage", 4))
    parts = b"(" + coordinates + tensor((3,), (1,)) + numbers((4, 4)) + b"\x88t"
    layout = call("torch.serialization._get_layout", text("torch.sparse_coo"))
    body = call("torch._utils._rebuild_sparse_tensor", layout, parts)
    with refused(FormatError, Reason.LAYOUT_COUNT):
        opened(body, storages={"0": SIX, "1": bytes(32)})


def quantized(torch: Any) -> dict[str, Any]:
    values = torch.linspace(-2, 2, 24).reshape(4, 6)
    scales, zeros = torch.rand(4) + 0.1, torch.arange(4)
    return {
        "signed": torch.quantize_per_tensor(values, 0.1, 3, torch.qint8),
        "unsigned": torch.quantize_per_tensor(values, 0.1, 30, torch.quint8),
        "rows": torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8),
        "images": torch.quantize_per_tensor(
            values.reshape(1, 4, 2, 3).to(memory_format=torch.channels_last), 0.1, 3, torch.quint8
        ),
    }


def test_quantized_tensors_are_groups(torch: Any) -> None:
    made = quantized(torch)
    reader = saved(torch, made)
    for name, value in made.items():
        assert reader.metadata(name).format == "quantized_group"
        np.testing.assert_array_equal(
            reader.read(name).dequantize(), value.dequantize().numpy(), strict=True
        )


def test_quantized_tensors_we_have_no_layout_for_are_kept_in_parts(torch: Any) -> None:
    values = torch.linspace(-2, 2, 6).reshape(2, 3)
    columns = torch.quantize_per_channel(values, torch.ones(3), torch.arange(3), 1, torch.qint8)
    wide = torch.quantize_per_tensor(values, 0.001, 5, torch.qint32)
    reader = saved(torch, {"columns": columns, "wide": wide})
    assert reader.metadata("columns").format == "torch.quantized"
    assert reader.metadata("columns").attributes == {"dtype": "torch.qint8", "axis": 1}
    parts = reader.read("columns").components
    assert parts["data"].tolist() == columns.int_repr().reshape(-1).tolist()
    assert parts["scale"].tolist() == [1, 1, 1]
    assert parts["zero_point"].tolist() == [0, 1, 2]
    attributes = {"dtype": "torch.qint32", "scale": 0.001, "zero_point": 5}
    assert reader.metadata("wide").attributes == attributes
    assert reader.read("wide").components["data"].tolist() == wide.int_repr().reshape(-1).tolist()


def test_a_tensor_without_elements_is_listed(torch: Any) -> None:
    reader = saved(torch, {"a": torch.empty(1 << 30, device="meta"), "b": torch.ones(2)})
    assert reader.metadata("a").shape == (1 << 30,)
    with refused(UnsupportedError, Reason.UNKNOWN_ENCODING):
        reader["a"]
    assert reader["b"].tolist() == [1, 1]


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_whole_modules_are_refused_by_name(torch: Any, is_zip: bool) -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.nn\.modules\.linear\.Linear"):
        saved(torch, torch.nn.Linear(2, 2), _use_new_zipfile_serialization=is_zip)


def test_a_storage_itself(torch: Any) -> None:
    assert saved(torch, {"a": torch.arange(3.0).storage()})["a"].tolist() == [0, 1, 2]


def test_a_pickle_of_python_is_refused() -> None:
    with refused(UnsupportedError, Reason.UNKNOWN_LAYOUT):
        ztensor.open(pickled(mapping(a=number(1), b=text("more than a few bytes"))))
