from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor import numpy as znumpy
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotRepresentableError,
    ObjectNotFoundError,
    UsageError,
)

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import sparse  # noqa: E402

from ztensor import flax as zflax  # noqa: E402
from ztensor import jax as zjax  # noqa: E402
from ztensor.jax import load, load_abstract, load_file, save, save_file  # noqa: E402

TYPES = [
    "float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8",
    "bool", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int4", "uint2",
]  # fmt: skip
WIDE = ["float64", "int64", "uint64", "complex128"]
MATRIX = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
QUANTIZED = Tensor.quantize(np.ones((128, 8), np.float32))


@contextlib.contextmanager
def x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def saved(tmp_path: Path, tensors: dict[str, Any]) -> Path:
    znumpy.save_file(tensors, tmp_path / "m.zt")
    return tmp_path / "m.zt"


# --- There and back -------------------------------------------------------------------------


def test_flax_is_the_same_by_another_name() -> None:
    for name in zjax.__all__:
        assert getattr(zflax, name) is getattr(zjax, name)
    assert zflax.__all__ == zjax.__all__


@pytest.mark.parametrize("copy", [False, True], ids=["shared", "copied"])
@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back(tmp_path: Path, name: str, compression: bool, copy: bool) -> None:
    array = jnp.arange(6).astype(name).reshape(2, 3)
    save_file({"w": array, "t": array.T}, tmp_path / "m.zt", compression=compression)
    found = load_file(tmp_path / "m.zt", copy=copy)
    assert list(found) == ["t", "w"]
    for value, expected in ((found["w"], array), (found["t"], array.T)):
        assert isinstance(value, jax.Array)
        assert (value.dtype, value.shape, value.weak_type) == (array.dtype, expected.shape, False)
        assert np.asarray(value).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (70_000,)], ids=str)
def test_every_shape_comes_back(shape: tuple[int, ...]) -> None:
    array = jnp.ones(shape, jnp.bfloat16)
    for copy in (False, True):
        found = load(save({"w": array}), copy=copy)["w"]
        assert (found.shape, found.dtype, bool((found == 1).all())) == (shape, array.dtype, True)


def test_the_file_is_that_of_the_numpy_functions() -> None:
    arrays = {"b": np.arange(5, dtype=np.float32), "a": MATRIX}
    of_jax = {name: jnp.asarray(array) for name, array in arrays.items()}
    assert save(of_jax, {"k": 1}) == znumpy.save(arrays, {"k": 1})
    assert save(arrays) == znumpy.save(arrays)  # NumPy's are taken as well


def test_an_array_with_two_names_is_stored_once(tmp_path: Path) -> None:
    array = jnp.ones(1000)
    shared = save_file({"embed": array, "head": array}, tmp_path / "m.zt")
    assert shared == {"head": "embed"}
    assert (tmp_path / "m.zt").stat().st_size < 2 * array.nbytes


def test_progress_and_version(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    save_file(
        {"w": jnp.ones(3)},
        tmp_path / "m.zt",
        version="1.1.0",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (12, 12)
    assert ztensor.open(tmp_path / "m.zt").version == "1.1.0"


def test_quantized_objects_stay_tensors() -> None:
    found = load(save({"q": QUANTIZED, "w": jnp.ones(2)}))
    assert isinstance(found["q"], Tensor)
    assert save(found) == save({"q": QUANTIZED, "w": jnp.ones(2)})


@pytest.mark.slow
def test_a_model_in_several_files(tmp_path: Path) -> None:
    arrays = {name: jnp.full(1000, value, jnp.float32) for value, name in enumerate("abc")}
    save_file(arrays, tmp_path / "m.zt", max_shard_size=5000)
    assert not (tmp_path / "m.zt").exists()
    sharding = arrays["a"].sharding
    for found in (load_file(tmp_path), load_file(tmp_path, sharding=sharding)):
        assert {name: float(array[0]) for name, array in found.items()} == {"a": 0, "b": 1, "c": 2}
    assert list(load_abstract(tmp_path)) == ["a", "b", "c"]


# --- Memory ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_large_arrays_share_the_mapped_file_and_keep_it(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": np.arange(50_000, dtype=np.float32)})
    with ztensor.open(path) as reader:
        array = reader.read_jax("w")
        address = reader["w"].ctypes.data
    assert array.unsafe_buffer_pointer() == address
    loaded = load_file(path)["w"]
    path.unlink()
    gc.collect()
    for value in (array, loaded):
        assert np.asarray(value).sum() == np.arange(50_000, dtype=np.float32).sum()


def test_a_donated_array_leaves_the_mapped_file_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": np.zeros(50_000, np.float32)})
    before = path.read_bytes()
    with ztensor.open(path) as reader:
        added = jax.jit(lambda value: value + 1, donate_argnums=0)(reader.read_jax("w"))
        assert added.sum() == 50_000
        assert not reader["w"].any()
    assert path.read_bytes() == before


# --- 64 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WIDE)
def test_wide_elements_are_never_narrowed(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, {"a": np.ones(2, np.float32), "w": np.ones(2, name)})
    with ztensor.open(path) as reader:
        for attempt in (
            lambda: load_file(path),
            lambda: load_file(path, sharding=lambda *_: jnp.ones(1).sharding),
            lambda: reader.read_jax("w"),
            lambda: load(path.read_bytes()),
        ):
            with pytest.raises(NotRepresentableError, match=r"'w'.*enable_x64.*ztensor\.numpy"):
                attempt()
        with pytest.raises(NotRepresentableError):
            reader.read("w").jax()


@pytest.mark.parametrize("name", WIDE)
def test_wide_elements_come_back_where_jax_has_them(name: str) -> None:
    with x64():
        array = jnp.ones(3, name)
        found = load(save({"w": array}))["w"]
        assert found.dtype == array.dtype == name
        assert (found == array).all()


def test_an_abstract_load_says_what_is_in_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": np.ones(2, np.int64)})
    assert load_abstract(path)["w"].dtype == np.int64


def test_an_element_type_jax_has_not(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="it has types JAX has not")
    path = saved(tmp_path, {"w": np.zeros(70_000, ml_dtypes.float6_e2m3fn)})
    with pytest.raises(NotRepresentableError, match=r"'w'.*no elements of this type.*float6_e2m3"):
        load_file(path)


# --- Sparse ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "matrix",
    [
        sparse.BCOO.fromdense(jnp.asarray(MATRIX)),
        sparse.BCOO.fromdense(jnp.asarray(MATRIX), nse=5),
        sparse.BCOO.fromdense(jnp.ones((2, 3, 2), jnp.bfloat16)),
        sparse.BCOO.fromdense(jnp.zeros((2, 3))),
        sparse.BCOO.fromdense(jnp.float32(3)),
        sparse.BCSR.fromdense(jnp.asarray(MATRIX)),
        sparse.BCSR.from_bcoo(sparse.BCOO.fromdense(jnp.asarray(MATRIX), nse=5)),
        sparse.BCSR.fromdense(jnp.zeros((2, 3))),
    ],
    ids=["coo", "padded coo", "3-d coo", "empty coo", "scalar", "csr", "padded csr", "empty csr"],
)
def test_sparse_matrices_come_back(matrix: Any) -> None:
    found = load(save({"s": matrix}))["s"]
    assert type(found) is type(matrix)
    assert (found.shape, found.dtype) == (matrix.shape, matrix.dtype)
    assert (found.todense() == matrix.todense()).all()
    # Else `jax.tree.map` over the saved and the loaded tree fails.
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(matrix)


@pytest.mark.parametrize(
    ("coords", "expected"),
    [
        ([[0, 0], [0, 1], [1, 0]], (True, True)),
        ([[0, 0], [0, 0], [1, 0]], (True, False)),
        ([[1, 0], [0, 1], [1, 0]], (False, False)),
        ([[1, 1]], (True, True)),
    ],
    ids=["in order", "twice", "in no order", "one"],
)
def test_what_is_known_of_the_order_comes_back(coords: Any, expected: tuple[bool, bool]) -> None:
    matrix = sparse.BCOO((jnp.ones(len(coords)), jnp.array(coords)), shape=(2, 2))
    found = load(save({"s": matrix}))["s"]
    assert (found.indices_sorted, found.unique_indices) == expected
    assert (found.todense() == matrix.todense()).all()


def test_indices_are_64_bits_only_where_they_must_be() -> None:
    small, large = (Tensor.csr(MATRIX[0, :1], [2], [0, 1], (1, width)) for width in (3, 1 << 40))
    assert small.jax().indices.dtype == np.int32
    with pytest.raises(NotRepresentableError):
        large.jax()


# --- What cannot be saved -------------------------------------------------------------------


def deleted() -> Any:
    array = jnp.ones(3)
    array.delete()
    return array


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: {"a": jnp.ones(2)}, ArgumentTypeError, "flatten_dict"),
        (lambda: [jnp.ones(2)], ArgumentTypeError, "flat dict"),
        (lambda: None, ArgumentTypeError, "tree"),
        (lambda: jax.random.key(0), NotRepresentableError, r"key_data\(key\)"),
        (lambda: jnp.ones(2, jnp.float8_e4m3b11fnuz), NotRepresentableError, "astype"),
        (
            lambda: sparse.BCOO.fromdense(jnp.ones((2, 2, 2)), n_batch=1),
            NotRepresentableError,
            "bcoo_update_layout",
        ),
        (lambda: sparse.COO.fromdense(jnp.ones((2, 2))), NotRepresentableError, "BCOO and BCSR"),
        (deleted, ArgumentTypeError, "deleted"),
        (lambda: jax.ShapeDtypeStruct((2,), "float32"), ArgumentTypeError, "no tensor"),
    ],
    ids=[
        "a dict", "a list", "None", "a key", "e4m3b11", "a batch", "COO", "a deleted array",
        "no elements",
    ],
)  # fmt: skip
def test_values_that_cannot_be_saved(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=rf"object 'w'.*{message}"):
        save({"w": make()})


def test_a_traced_value_cannot_be_saved() -> None:
    with pytest.raises(ArgumentTypeError, match=r"'w'.*outside of jit"):
        jax.jit(lambda value: save({"w": value}))(jnp.ones(2))


def test_what_is_no_dict_cannot_be_saved() -> None:
    with pytest.raises(ArgumentTypeError):
        save([jnp.ones(2)])  # type: ignore[arg-type]


def test_load_takes_bytes_and_load_file_paths(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError):
        load(str(tmp_path))  # type: ignore[arg-type]


# --- Single objects -------------------------------------------------------------------------


def test_reading_one_or_several(tmp_path: Path) -> None:
    path = saved(tmp_path, {"a": MATRIX, "s": Tensor.csr(MATRIX[0, :1], [2], [0, 1], (1, 3))})
    with ztensor.open(path) as reader:
        assert isinstance(reader.read_jax("a"), jax.Array)
        found = reader.read_jax(["s", "a"])
        assert list(found) == ["s", "a"]
        assert isinstance(found["s"], sparse.BCSR)
        with pytest.raises(ObjectNotFoundError):
            reader.read_jax("no such")


@pytest.mark.slow
def test_a_tensor_as_jax_has_it() -> None:
    assert Tensor(MATRIX).jax().tolist() == MATRIX.tolist()
    assert Tensor.coo([1.0], [[0], [1]], (2, 2)).components["values"].dtype == np.float64
    with x64():
        matrix = Tensor.coo([1.0], [[0], [1]], (2, 2)).jax(device="cpu")
        assert matrix.todense().tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (QUANTIZED, r"dequantize\(\)"),
        (Tensor({"x": MATRIX}, format="made_up", shape=(2, 3)), r"\.components"),
    ],
    ids=["quantized", "unknown"],
)
def test_layouts_jax_has_not(tmp_path: Path, tensor: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tensor.jax()
    with (
        ztensor.open(saved(tmp_path, {"q": tensor})) as reader,
        pytest.raises(UsageError, match=rf"'q'.*{message}"),
    ):
        reader.read_jax("q")


# --- Where to -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cpu:0", jax.local_devices()[0]], ids=str)
def test_devices(tmp_path: Path, device: Any) -> None:
    path = saved(tmp_path, {"w": MATRIX})
    assert load_file(path, device=device)["w"].devices() == {jax.local_devices()[0]}


WRONG_PLACES: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a platform": ({"device": "abacus"}, ArgumentValueError),
    "a number too large": ({"device": "cpu:99"}, ArgumentValueError),
    "a malformed number": ({"device": "cpu:x"}, ArgumentValueError),
    "not a device": ({"device": 0}, ArgumentTypeError),
    "not a sharding": ({"sharding": "x"}, ArgumentTypeError),
    "not a sharding inside": ({"sharding": {"w": "x"}}, ArgumentValueError),
    "not an object": ({"sharding": {"v": None}}, ObjectNotFoundError),
    "both": ({"sharding": {}, "device": "cpu"}, ArgumentValueError),
}


@pytest.mark.parametrize("name", WRONG_PLACES)
def test_wrong_devices_and_shardings(tmp_path: Path, name: str) -> None:
    options, kind = WRONG_PLACES[name]
    with pytest.raises(kind):
        load_file(saved(tmp_path, {"w": MATRIX}), **options)


def test_only_dense_objects_are_sharded(tmp_path: Path) -> None:
    path = saved(tmp_path, {"q": QUANTIZED, "w": MATRIX})
    sharding = jnp.ones(1).sharding
    asked = []
    found = load_file(path, sharding=lambda name, struct: asked.append((name, struct.shape)))
    assert asked == [("w", (2, 3))]
    assert isinstance(found["q"], Tensor)
    for wrong in (sharding, {"q": sharding}):
        with pytest.raises(NotRepresentableError, match=r"'q'.*only dense objects can be sharded"):
            load_file(path, sharding=wrong)


def test_abstract_values_go_where_jax_takes_them(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": MATRIX, "b": np.ones(3, np.float32), "q": QUANTIZED})
    sharding = jnp.ones(1).sharding
    found: Any = load_abstract(path, sharding={"w": sharding})
    assert isinstance(found.pop("q"), ztensor.TensorMetadata)
    assert {name: (one.shape, one.dtype) for name, one in found.items()} == {
        "w": ((2, 3), np.float32),
        "b": ((3,), np.float32),
    }
    assert found["w"].sharding == sharding
    assert found["b"].sharding is None
    result = jax.eval_shape(lambda params: params["w"] @ params["b"], found)
    assert result.shape == (2,)


# --- Four devices ---------------------------------------------------------------------------

# Virtual devices have to be set before JAX starts, hence a process of its own.
PROGRAM = """
import io, json, sys
import jax, jax.numpy as jnp, numpy as np
import ztensor, ztensor.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

path = sys.argv[1]
WEIGHT = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
ztensor.jax.save_file({"w": WEIGHT, "b": WEIGHT[0, :6], "s": WEIGHT[0, 0]}, path)

class Counting(io.FileIO):
    reads = []
    def readinto(self, buffer):
        got = super().readinto(buffer)
        self.reads.append(got)
        return got
    def read(self, size=-1):
        got = super().read(size)
        self.reads.append(len(got))
        return got

devices = np.array(jax.devices())
line, square = Mesh(devices, ("x",)), Mesh(devices.reshape(2, 2), ("x", "y"))
shardings = {
    "rows": NamedSharding(line, P("x")),
    "columns": NamedSharding(line, P(None, "x")),
    "blocks": NamedSharding(square, P("x", "y")),
    "halves": NamedSharding(square, P("y")),
    "replicated": NamedSharding(line, P()),
}
facts = {"devices": len(devices)}
for key, sharding in shardings.items():
    with Counting(path) as file, ztensor.open(file) as reader:
        Counting.reads.clear()
        array = reader.read_jax("w", sharding=sharding)
    mapped = ztensor.jax.load_file(path, sharding={"w": sharding})["w"]
    copied = ztensor.jax.load_file(path, sharding={"w": sharding}, copy=True)["w"]
    facts[key] = {
        "placed": array.sharding == sharding,
        "equal": all(bool((np.asarray(one) == WEIGHT).all()) for one in (array, mapped, copied)),
        "read": sum(Counting.reads),
        "largest": max(Counting.reads),
        "saved": ztensor.jax.save({"w": array}) == ztensor.jax.save({"w": WEIGHT}),
    }

def choose(name, struct):
    return shardings["rows"] if struct.ndim == 2 else None

chosen = ztensor.jax.load_file(path, sharding=choose)
facts["chosen"] = {name: len(array.devices()) for name, array in chosen.items()}
abstract = ztensor.jax.load_abstract(path, sharding=choose)
facts["abstract"] = abstract["w"].sharding == shardings["rows"]
facts["third"] = [one.id for one in ztensor.jax.load_file(path, device="cpu:3")["w"].devices()]
for name in ("b", "s"):
    try:
        ztensor.jax.load_file(path, sharding={name: shardings["rows"]})
    except ztensor.UsageError as error:
        facts[f"error of {name}"] = str(error)
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of a process with four devices."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path_factory.mktemp("f") / "m.zt")],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            "JAX_PLATFORMS": "cpu",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["devices"] == 4
    return found


@pytest.mark.slow
@pytest.mark.parametrize("key", ["rows", "columns", "blocks", "halves", "replicated"])
def test_an_array_is_spread_over_devices(facts: dict[str, Any], key: str) -> None:
    assert {fact: facts[key][fact] for fact in ("placed", "equal", "saved")} == {
        "placed": True,
        "equal": True,
        "saved": True,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("key", "parts"), [("rows", 4), ("halves", 2), ("replicated", 1)])
def test_each_part_is_read_once_and_by_itself(facts: dict[str, Any], key: str, parts: int) -> None:
    assert facts[key]["read"] == 64 * 32 * 4
    assert facts[key]["largest"] == 64 * 32 * 4 // parts


def test_without_a_sharding_by_an_abstract_value_and_by_a_name(facts: dict[str, Any]) -> None:
    assert facts["chosen"] == {"w": 4, "b": 1, "s": 1}
    assert facts["abstract"] is True
    assert facts["third"] == [3]


@pytest.mark.parametrize("name", ["b", "s"], ids=["not divisible", "too many axes"])
def test_a_sharding_that_does_not_fit(facts: dict[str, Any], name: str) -> None:
    assert f"object '{name}': the sharding does not fit" in facts[f"error of {name}"]
