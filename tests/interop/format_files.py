"""Files of every format, made and read by the libraries these formats belong to.

`formats.py` does with them what users do with files, and prints what becomes of it.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib
import importlib.util
import io
import itertools
import json
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import ml_dtypes
import numpy as np

import ztensor.numpy
from tests.interop.frameworks import (
    NARROW,
    PACKED,
    TYPES,
    Seen,
    Torch,
    bits,
    part,
    patterns,
    typed,
    unpacked,
)
from ztensor import Tensor
from ztensor.ext import STORAGE_TYPES, numpy_dtype
from ztensor.typing import Array

CORPUS = Path(__file__).parents[1] / "corpus"
ALL = tuple(TYPES.values())
NUMPYS_OWN = tuple(kind for kind in ALL if numpy_dtype(kind).isbuiltin == 1)


class Held(NamedTuple):
    """The content of a file: tensors, its attributes, and attributes of tensors."""

    tensors: Mapping[str, Seen]
    attributes: Mapping[str, Any]
    notes: Mapping[str, Mapping[str, Any]]


class Place(NamedTuple):
    """The place of a tensor's stored bytes, and whether a flipped bit can be noticed."""

    name: str
    path: Path
    offset: int
    length: int
    has_checksum: bool


# --- Samples --------------------------------------------------------------------------------


def arrays(kinds: tuple[str, ...], count: int = 1 << 20) -> dict[str, Array]:
    """Return arrays of all those types, and of odd shapes; the largest has `count` elements."""
    made: dict[str, Array] = {}
    for kind in kinds:
        values = typed(kind, patterns(kind))
        made[f"all/{kind}"] = values.reshape(-1, 4)
        made[f"few/{kind}"] = values[:24].reshape(2, 3, 4)
    numbers: Array = np.arange(count, dtype=np.float32).reshape(-1, 1024)
    return made | {
        "large": numbers,
        "scalar": np.array(-1.5, np.float32),
        "one": np.array([7], np.int32),
        "none": np.zeros((0, 4), np.float32),
        "none.inside": np.zeros((3, 0, 2), np.int32),
    }


def odd(kinds: tuple[str, ...]) -> dict[str, Array]:
    """Return arrays in the other byte order, and of Fortran's order of axes."""
    made: dict[str, Array] = {}
    for kind in kinds:
        values = typed(kind, patterns(kind))[:24].reshape(2, 3, 4)
        made[f"big endian/{kind}"] = values.astype(values.dtype.newbyteorder(">"))
        made[f"fortran/{kind}"] = np.asfortranarray(values)
        made[f"both/{kind}"] = np.asfortranarray(values.astype(values.dtype.newbyteorder(">")))
    return made


def dense(array: Array) -> Seen:
    """Return the content of an array, without the order of its bytes and axes."""
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    return Seen(array.shape, {"data": bits(native)})


def library(name: str) -> Any:
    """Return a library, untyped."""
    return importlib.import_module(name)


# --- Formats --------------------------------------------------------------------------------


class Format(abc.ABC):
    """A kind of file.

    Attributes:
        title: as the table calls it.
        libraries: what makes its files and reads them.
        written_as: for `ztensor.convert(to=...)`, or None for a format that we only read.
        version: of a `.zt` file.
        has_checksum: whether a flipped bit can be noticed, in tensors without a digest too.
        hostile_samples: patterns of the samples below `tests/corpus`.
    """

    title: str
    libraries: tuple[str, ...] = ()
    written_as: str | None = None
    version = "1.2.0"
    has_checksum = False
    hostile_samples: tuple[str, ...] = ()

    @abc.abstractmethod
    def make(self, folder: Path) -> list[Path]:
        """Write the files of a row by the library alone; return their paths."""

    @abc.abstractmethod
    def read(self, path: Path) -> Held:
        """Read a file by the library."""

    def places(self, path: Path) -> list[Place]:
        """Return the places of the stored bytes."""
        places = []
        with ztensor.open(path) as reader:
            for name in reader:
                for role, component in reader.metadata(name).components.items():
                    where = reader.location(name, role)
                    assert where.path is not None, f"{name!r} has no place"
                    has_checksum = self.has_checksum or component.digest is not None
                    numbers = where.offset, where.length
                    places.append(Place(name, Path(where.path), *numbers, has_checksum))
        return places

    def hostile(self, folder: Path) -> list[Path]:
        """Return the samples to refuse; those outside of the corpus are made in a folder."""
        del folder
        found = [path for pattern in self.hostile_samples for path in sorted(CORPUS.glob(pattern))]
        return [path for path in found if path.name != "expected.json" and self.is_kind(path)]

    def is_kind(self, path: Path) -> bool:
        """Return whether a hostile sample is of this row."""
        del path
        return True

    def is_left_to_verify(self, path: Path) -> bool:
        """Return whether reading may give values of a hostile sample, and verifying not."""
        del path
        return False


class ZTensor(Format):
    """Our own files: by this release, and by the released wheels of the corpus.

    cbor2 reads the manifest and a zstd binding the compressed components; our code reads nothing.
    """

    libraries = ("cbor2",)
    written_as = "zt"
    _WORDS_OF_1_1: Mapping[str, str] = {"f8_e4m3": "float8_e4m3fn"}
    _OF_1_1 = ("float8_e4m3fn", "float8_e5m2", "complex64", "complex128")

    def __init__(self, version: str) -> None:
        self.title = f"zTensor {version}"
        self.version = version

    @functools.cached_property
    def _entries(self) -> list[dict[str, Any]]:
        entries = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
        return [entry for entry in entries if entry["spec_version"] == self.version]

    def make(self, folder: Path) -> list[Path]:
        plain = tuple(storage.long_name for storage in STORAGE_TYPES.values())
        kinds = {"0.1.0": plain, "1.1.0": plain + self._OF_1_1}.get(self.version, ALL)
        tensors: dict[str, Any] = dict(arrays(kinds))
        attributes = None
        if self.version != "0.1.0":
            attributes = {"note": "an example"}
            tensors["csr"] = Tensor.csr(np.ones(2, np.float16), [3, 0], [0, 1, 2], (2, 4))
            tensors["coo"] = Tensor.coo(np.ones(2, np.float16), [[0, 1], [3, 0]], (2, 4))
        made = [folder / "raw.zt", folder / "zstd.zt"]
        for path, compression in zip(made, (False, True), strict=True):
            ztensor.numpy.save_file(
                tensors, path, attributes, compression=compression, version=self.version
            )
        for entry in self._entries:
            if (entry["origin"], entry["expect"]) == ("real", "accept"):
                made.append(folder / entry["path"].replace("/", "-"))
                shutil.copy(CORPUS / entry["path"], made[-1])
        return made

    def read(self, path: Path) -> Held:
        data = path.read_bytes()
        if self.version == "0.1.0":
            return self._read_index(data)
        length = int.from_bytes(data[-16:-8], "little")
        manifest = cbor2.loads(data[-16 - length : -16])
        tensors, notes = {}, {}
        for name, entry in manifest["objects"].items():
            parts = {}
            for role, stored in entry["components"].items():
                words = stored.get("type"), stored["dtype"]
                kind = next(kind for word in words if (kind := self._kind(word)))
                whole = self._stored(data, stored, stored["length"])
                values = unpacked(kind, whole) if kind in NARROW else typed(kind, whole)
                parts[role] = part(role, values)
            tensors[name] = Seen(tuple(entry["shape"]), parts)
            notes[name] = entry.get("attributes") or {}
        return Held(tensors, manifest.get("attributes") or {}, notes)

    def _read_index(self, data: bytes) -> Held:
        length = int.from_bytes(data[-8:], "little")
        fields = {"name", "offset", "size", "dtype", "layout", "shape", "encoding"}
        fields |= {"checksum", "data_endianness"}
        tensors, notes = {}, {}
        for entry in cbor2.loads(data[-8 - length : -8]):
            name, values = entry["name"], self._stored(data, entry, entry["size"])
            kind = numpy_dtype(entry["dtype"])
            if entry.get("data_endianness") == "big":
                kind = kind.newbyteorder(">")
            array = np.frombuffer(values, kind).reshape(entry["shape"])
            tensors[name] = dense(array)
            notes[name] = {key: value for key, value in entry.items() if key not in fields}
        return Held(tensors, {}, notes)

    def _kind(self, word: str | None) -> str | None:
        return None if word is None else self._WORDS_OF_1_1.get(word, TYPES.get(word))

    def _stored(self, data: bytes, entry: Mapping[str, Any], length: int) -> bytes:
        stored = data[entry["offset"] :][:length]
        return unzstd(stored) if entry.get("encoding") == "zstd" else stored

    def hostile(self, folder: Path) -> list[Path]:
        del folder
        return [CORPUS / one["path"] for one in self._entries if one["expect"] == "reject"]

    def is_left_to_verify(self, path: Path) -> bool:
        own = path.relative_to(CORPUS).as_posix()
        return any(one["path"] == own and one["stage"] == "verify" for one in self._entries)


def unzstd(data: bytes) -> bytes:
    """Decompress zstd frames."""
    if sys.version_info >= (3, 14):
        return bytes(library("compression.zstd").decompress(data))
    reader = library("zstandard").ZstdDecompressor().stream_reader(data, read_across_frames=True)
    return bytes(reader.read())


class Safetensors(Format):
    """One file, by `serialize_file`, which needs no framework and has the most types."""

    title = "safetensors"
    libraries = ("safetensors",)
    written_as = "safetensors"
    hostile_samples: tuple[str, ...] = ("foreign/reject/safetensors/*",)
    _WORDS: Mapping[str, str] = {
        "BOOL": "bool",
        "C64": "complex64",
        "BF16": "bfloat16",
        "F4": PACKED,
        "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
        "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        **{f"F{width}": f"float{width}" for width in (16, 32, 64)},
        **{f"I{width}": f"int{width}" for width in (8, 16, 32, 64)},
        **{f"U{width}": f"uint{width}" for width in (8, 16, 32, 64)},
    }

    def make(self, folder: Path) -> list[Path]:
        path = folder / "model.safetensors"
        self._save(arrays(self._known()), path, {"format": "np", "note": "an example"})
        return [path]

    def _known(self) -> tuple[str, ...]:
        """Return the types this release of the library can write."""
        known = []
        for kind in self._WORDS.values():
            with contextlib.suppress(library("safetensors").SafetensorError):
                library("safetensors").serialize(self._specs({"a": typed(kind, patterns(kind))}))
                known.append(kind)
        return tuple(known)

    def _specs(self, tensors: Mapping[str, Array]) -> dict[str, Any]:
        module, specs = library("safetensors"), {}
        for name, array in tensors.items():
            kind, data = bits(array)
            shape = list(array.shape)
            if kind == PACKED:
                kind, shape[-1] = f"{PACKED}_x2", shape[-1] // 2
            if hasattr(module, "TensorSpec"):  # from 0.8 on; before, a dict
                held = self._hold(data)
                specs[name] = module.TensorSpec(
                    dtype=kind, shape=shape, data_ptr=held.ctypes.data, data_len=len(data)
                )
            else:
                specs[name] = {"dtype": kind, "shape": shape, "data": data}
        return specs

    @functools.cache  # noqa: B019  # keeps the memory behind the pointers
    def _hold(self, data: bytes) -> Any:
        return np.frombuffer(data or b"\0", np.uint8)

    def _save(self, tensors: Mapping[str, Array], path: Path, metadata: dict[str, str]) -> None:
        library("safetensors").serialize_file(self._specs(tensors), str(path), metadata)

    def read(self, path: Path) -> Held:
        tensors = {}
        for name, entry in library("safetensors").deserialize(path.read_bytes()):
            kind = self._WORDS[entry["dtype"]]
            tensors[name] = Seen(tuple(entry["shape"]), {"data": (kind, bytes(entry["data"]))})
        with library("safetensors").safe_open(str(path), framework="np") as file:
            return Held(tensors, file.metadata() or {}, {})


class Sharded(Safetensors):
    """Several files and the index that names them, as the hub has them."""

    title = "safetensors, sharded"
    _INDICES: Mapping[str, object] = {
        "above": {"weight_map": {"a": "../good.safetensors"}},
        "absolute": {"weight_map": {"a": "/good.safetensors"}},
        "missing": {"weight_map": {"a": "other.safetensors"}},
        "number": {"weight_map": {"a": 5}},
        "no_map": {"metadata": {}},
        "not_there": {"weight_map": {"a": "good.safetensors", "b": "good.safetensors"}},
    }

    def make(self, folder: Path) -> list[Path]:
        left = arrays(self._known())
        names = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
        where = {name: names[number % 3] for number, name in enumerate(left)}
        for shard in names:
            mine = {name: array for name, array in left.items() if where[name] == shard}
            self._save(mine, folder / shard, {"format": "np"})
        total = sum(array.nbytes for array in left.values())
        return [
            self._index(folder / "model", {"metadata": {"total_size": total}, "weight_map": where})
        ]

    def _index(self, stem: Path, value: object) -> Path:
        path = stem.with_name(f"{stem.name}.safetensors.index.json")
        path.write_text(json.dumps(value), "utf-8")
        return path

    def read(self, path: Path) -> Held:
        if path.suffix != ".json":  # what we export is one file
            return super().read(path)
        index = json.loads(path.read_text("utf-8"))
        shards = {
            shard: super(Sharded, self).read(path.parent / shard)
            for shard in index["weight_map"].values()
        }
        tensors = {name: shards[shard].tensors[name] for name, shard in index["weight_map"].items()}
        attributes: dict[str, Any] = {}
        for shard in shards.values():
            attributes |= shard.attributes
        return Held(tensors, attributes, {})

    def hostile(self, folder: Path) -> list[Path]:
        self._save({"a": np.arange(4)}, folder / "good.safetensors", {})
        made = [self._index(folder / name, value) for name, value in self._INDICES.items()]
        for sample in super().hostile(folder):
            shutil.copy(sample, folder)
            where = {"a": "good.safetensors", "b": sample.name}
            made.append(self._index(folder / sample.stem, {"weight_map": where}))
        return made


class Npy(Format):
    """One array in a file."""

    title = "npy"
    libraries = ("numpy",)
    written_as = "npy"
    hostile_samples: tuple[str, ...] = ("foreign/reject/npz/*.npy",)

    def make(self, folder: Path) -> list[Path]:
        made = []
        for number, array in enumerate((arrays(NUMPYS_OWN, 1 << 18) | odd(NUMPYS_OWN)).values()):
            made.append(folder / f"{number}.npy")
            np.save(made[-1], array)
        return made

    def read(self, path: Path) -> Held:
        return Held({"array": dense(np.load(path))}, {}, {})


class Npz(Format):
    """An archive of arrays."""

    title = "npz, stored"
    libraries = ("numpy",)
    written_as = "npz"
    hostile_samples: tuple[str, ...] = ("foreign/reject/npz/*.npz",)
    save = staticmethod(np.savez)

    def make(self, folder: Path) -> list[Path]:
        path = folder / "model.npz"
        tensors: dict[str, Any] = arrays(NUMPYS_OWN) | odd(NUMPYS_OWN)
        self.save(path, **tensors)
        return [path]

    def read(self, path: Path) -> Held:
        with np.load(path) as file:
            return Held({name: dense(array) for name, array in file.items()}, {}, {})


class DeflatedNpz(Npz):
    """The same, compressed."""

    title = "npz, deflated"
    has_checksum = True
    save = staticmethod(np.savez_compressed)


class TorchZip(Format):
    """The format of `torch.save` since 1.6."""

    title = "torch.save, zip"
    libraries = ("torch",)
    hostile_samples: tuple[str, ...] = ("foreign/reject/pt/*",)
    is_zip = True

    def make(self, folder: Path) -> list[Path]:
        torch, path = library("torch"), folder / "checkpoint.pt"
        tensors = {}
        for name, array in arrays(self._known()).items():
            if not array.size:
                tensors[name] = torch.from_numpy(array)
                continue
            rows = Torch().vector(array.reshape(-1, *array.shape[-1:]))
            tensors[name] = rows.reshape(*array.shape[:-1], *rows.shape[-1:])
            if not array.ndim:
                tensors[name] = rows.reshape(())
        whole = torch.arange(24.0).reshape(4, 6)
        with warnings.catch_warnings(action="ignore"):  # "in beta state"
            value = {
                "model": tensors,
                "views": {
                    "whole": whole,
                    "same": whole,
                    "turned": whole.T,
                    "steps": whole[::2, 1::3],
                    "inside": whole[1:3],
                    "expanded": whole[:1].expand(5, 6),
                },
                "list": [torch.ones(2), {"deep": torch.nn.Parameter(torch.ones(3))}],
                "csr": whole.to_sparse_csr(),
                "coo": whole.to_sparse().coalesce(),
                "optimizer": {"lr": 0.5, "betas": [0.9, 0.999], "name": "adam"},
                "inside": {"rate": 0.25, "tensor": torch.ones(1)},
                "epoch": 3,
                "nothing": None,
            }
            torch.save(value, path, _use_new_zipfile_serialization=self.is_zip)
        return [path]

    def read(self, path: Path) -> Held:
        torch = library("torch")
        tensors, attributes = {}, {}
        with warnings.catch_warnings(action="ignore"):
            for name, value in flat(torch.load(path, weights_only=True), torch.Tensor):
                if not isinstance(value, torch.Tensor):
                    attributes[name] = value
                elif value.layout is torch.strided:
                    tensors[name] = self._strided(value.detach())
                else:
                    tensors[name] = Torch().seen(value.detach())
        return Held(tensors, attributes, {})

    def _known(self) -> tuple[str, ...]:
        """Return the types this release of torch has, and loads from such a file."""
        torch, known = library("torch"), []
        for kind in ALL:
            with contextlib.suppress(AttributeError, TypeError):  # torch has no such type
                data = io.BytesIO()
                value = Torch().vector(typed(kind, patterns(kind)))
                torch.save(value, data, _use_new_zipfile_serialization=self.is_zip)
                data.seek(0)
                torch.load(data, weights_only=True)
                known.append(kind)
        return tuple(known)

    def _strided(self, value: Any) -> Seen:
        name = str(value.dtype).removeprefix("torch.")
        if not value.numel():
            return Seen(tuple(value.shape), {"data": (name, b"")})
        kind, data = Torch().bits(value.reshape(-1))
        shape = tuple(value.shape)
        return Seen((*shape[:-1], 2 * shape[-1]) if kind != name else shape, {"data": (kind, data)})

    def is_kind(self, path: Path) -> bool:
        return path.read_bytes().startswith(b"PK") is self.is_zip


class TorchLegacy(TorchZip):
    """The format of `torch.save` before 1.6."""

    title = "torch.save, legacy"
    is_zip = False


def flat(value: Any, tensor: type, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested dicts and lists, tensors and others, by dotted names."""
    if not has_any(value, tensor):
        yield name, list(value) if isinstance(value, tuple) else value
    elif isinstance(value, tensor):
        yield name, value
    else:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from flat(item, tensor, f"{name}.{key}" if name else str(key))


def has_any(value: Any, tensor: type) -> bool:
    """Return whether a tensor is in a nest of dicts and lists."""
    if isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        return any(has_any(item, tensor) for item in items)
    return isinstance(value, tensor)


class Gguf(Format):
    """Plain elements and all types of blocks; plain elements also in big-endian files."""

    title = "GGUF"
    libraries = ("gguf",)
    written_as = "gguf"
    hostile_samples: tuple[str, ...] = ("foreign/reject/gguf/*",)
    # What both the package and we take apart; issue 6 asks for the first ten.
    DECODED = (
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"),
    )

    def make(self, folder: Path) -> list[Path]:
        made = []
        for name in ("LITTLE", "BIG"):
            made.append(folder / f"{name.lower()}.gguf")
            endian = library("gguf").GGUFEndian[name]
            writer = library("gguf").GGUFWriter(made[-1], "llama", endianess=endian)
            self._describe(writer)
            plain = arrays(("int8", "int16", "int32", "int64", "float16", "float32", "float64"))
            del plain["scalar"]  # ggml has none
            for key, array in plain.items():
                writer.add_tensor(key, np.ascontiguousarray(array).reshape(array.shape))
            if name == "LITTLE":  # nothing says how blocks are to be swapped
                self._add_blocks(writer)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        return made

    def _describe(self, writer: Any) -> None:
        for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            getattr(writer, f"add_{kind}")(f"numbers.{kind}", 7)
        writer.add_float32("numbers.float32", 0.5)
        writer.add_float64("numbers.float64", 0.1)
        writer.add_bool("flag", True)
        writer.add_string("text", "ä")
        writer.add_array("words", ["a", "", "ä"])
        writer.add_array("counts", [1, 2, 3])
        writer.add_array("scores", [0.5, -1.5])

    def _add_blocks(self, writer: Any) -> None:
        gguf = library("gguf")
        random = np.random.default_rng(0)
        for kind in gguf.GGMLQuantizationType:
            # Of Q8_1, which is in no file, the package and ggml have other sizes.
            if kind.name in ("F16", "F32", "F64", "I8", "I16", "I32", "I64", "Q8_1"):
                continue
            count, length = gguf.GGML_QUANT_SIZES[kind]
            # No byte of 0x3c or more: whatever of it is a float is a small finite one.
            blocks = random.integers(0, 0x3C, (6, -(-512 // count) * length), np.uint8)
            writer.add_tensor(f"blocks/{kind.name}", blocks, raw_dtype=kind)

    def read(self, path: Path) -> Held:
        gguf = library("gguf")
        reader = gguf.GGUFReader(path)
        tensors, attributes, types = {}, {}, []
        for tensor in reader.tensors:
            kind, shape = tensor.tensor_type.name, tuple(map(int, tensor.shape[::-1]))
            if kind == "BF16":
                tensors[tensor.name] = dense(
                    np.ascontiguousarray(tensor.data).view(ml_dtypes.bfloat16)
                )
                continue
            tensors[tensor.name] = Seen(shape, dense(tensor.data).parts)
            if kind in self.DECODED:
                floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                parts = {**tensors[tensor.name].parts, "dense": bits(floats)}
                tensors[tensor.name] = Seen(shape, parts)
        for key, field in reader.fields.items():
            if not key.startswith("GGUF."):
                attributes[key] = field.contents()
                words = [self._word(kind) for kind in field.types]
                types.append([key, words[0] if len(words) == 1 else f"[{words[1]}]"])
        return Held(tensors, {**attributes, "GGUF.types": types}, {})

    def _word(self, kind: Any) -> str:
        words = {"STRING": "str", "BOOL": "bool"}
        return words.get(kind.name, f"{kind.name[0].lower()}{kind.name.lstrip('UINTFLOA')}")


class Hdf5(Format):
    """Contiguous datasets."""

    title = "HDF5, contiguous"
    libraries = ("h5py",)
    written_as = "hdf5"
    hostile_samples: tuple[str, ...] = ("foreign/reject/hdf5/*",)
    count = 1 << 20
    ways: Mapping[str, Mapping[str, Any]] = {"": {}}

    def make(self, folder: Path) -> list[Path]:
        made = []
        for version in ("earliest", "latest"):
            made.append(folder / f"{version}.h5")
            with library("h5py").File(made[-1], "w", libver=version) as file:
                file.attrs["backend"] = "jax"
                file.attrs["numbers"] = np.array([1, 2])
                tensors = self.tensors()
                for (way, options), name in itertools.product(self.ways.items(), tensors):
                    array = tensors[name]
                    if (not array.size and options) or (name == "large" and way):
                        continue  # nothing is in no chunks; once is enough
                    how = options if array.ndim else {}
                    file.create_dataset(f"{way}{name}", data=array, **how)
                file["large"].attrs["unit"] = "cm"
                file["all"].attrs["depth"] = 0.5
                file["same as one"] = file["one"]
                file["also one"] = library("h5py").SoftLink("/one")
        return made

    def tensors(self) -> dict[str, Array]:
        """Return the content of the datasets; HDF5 has no Fortran order."""
        others = {name: array for name, array in odd(NUMPYS_OWN).items() if name.startswith("big")}
        return arrays(NUMPYS_OWN, self.count) | others

    def read(self, path: Path) -> Held:
        h5py = library("h5py")
        tensors: dict[str, Seen] = {}
        attributes: dict[str, Any] = {}
        notes: dict[str, dict[str, Any]] = {}

        def walk(group: Any, above: str) -> None:
            for key, item in group.items():
                name, found = f"{above}{key}", {k: simple(v) for k, v in item.attrs.items()}
                if isinstance(item, h5py.Group):
                    walk(item, f"{name}/")
                    attributes.update({f"/{name}": found} if found else {})
                    continue
                values = item[()]
                # What Keras marks, and what we do where HDF5 has no word for elements.
                kind = found.pop("ztensor.type", None) or (
                    found.get("dtype") if values.dtype.kind == "V" else None
                )
                if kind is not None:
                    values = values.view(numpy_dtype(TYPES.get(kind, kind)))
                tensors[name], notes[name] = dense(np.asarray(values)), found

        with h5py.File(path) as file:
            walk(file, "")
            attributes |= {key: simple(value) for key, value in file.attrs.items()}
        return Held(tensors, attributes, notes)


def simple(value: Any) -> Any:
    """Return an attribute as h5py gives it, as Python has it."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


class ChunkedHdf5(Hdf5):
    """Datasets in chunks, behind each filter that comes with h5py; all of them with a checksum."""

    title = "HDF5, chunked"
    has_checksum = True
    count = 9 << 18  # in bytes more than is decoded at a time
    ways: Mapping[str, Mapping[str, Any]] = {
        "": {"compression": "gzip", "shuffle": True},
        "gzip/": {"compression": "gzip"},
        "sum/": {"fletcher32": True},
        "lzf/": {"compression": "lzf", "fletcher32": True},
        "all/of/": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    }

    def tensors(self) -> dict[str, Array]:
        kinds = ("float32", "float16", "complex128", "bool", "uint64")
        others = {name: array for name, array in odd(kinds).items() if name.startswith("big")}
        return arrays(kinds, self.count) | others

    def places(self, path: Path) -> list[Place]:
        """Return the place of the first chunk of each dataset."""
        h5py, places = library("h5py"), []

        def add(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.chunks and item.id.get_num_chunks():
                chunk = item.id.get_chunk_info(0)
                places.append(Place(name, path, chunk.byte_offset, chunk.size, has_checksum=True))

        with h5py.File(path) as file:
            file.visititems(add)
        return places


class Keras(Hdf5):
    """The groups and names of Keras 3 in a `.weights.h5`, bfloat16 as it stores that."""

    title = "Keras weights"

    def make(self, folder: Path) -> list[Path]:
        path = folder / "model.weights.h5"
        with library("h5py").File(path, "w") as file:
            tensors = arrays((*NUMPYS_OWN, "bfloat16"))
            for number, array in enumerate(tensors.values()):
                group = file.create_group(f"layers/dense_{number}")
                group.attrs["name"] = f"dense_{number}"
                stored = array.view("V2") if array.dtype.name == "bfloat16" else array
                dataset = group.create_group("vars").create_dataset("0", data=stored)
                if stored is not array:
                    dataset.attrs["dtype"] = "bfloat16"
            file.create_group("optimizer/vars")["0"] = np.int64(12)
        return [path]


class Onnx(Format):
    """Initializers in the model: raw, as numbers, and sparse."""

    title = "ONNX, inline"
    libraries = ("onnx",)
    hostile_samples: tuple[str, ...] = ("foreign/reject/onnx/*",)
    is_external = False
    _ODD = (
        *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", PACKED, "int4", "uint4", "int2", "uint2"),
    )

    def make(self, folder: Path) -> list[Path]:
        onnx = library("onnx")
        helper, kinds = onnx.helper, onnx.TensorProto
        tensors = [onnx.numpy_helper.from_array(a, k) for k, a in arrays(NUMPYS_OWN).items()]
        for name, array in arrays(NUMPYS_OWN, 0).items():
            code = helper.np_dtype_to_tensor_dtype(array.dtype)
            if np.isfinite(array).all():
                tensors.append(
                    helper.make_tensor(f"typed/{name}", code, array.shape, array.flatten())
                )
        tensors += self._odd(onnx)
        sparse = [] if self.is_external else self._sparse(helper, kinds)
        graph = helper.make_graph([], "main", [], [], tensors, sparse_initializer=sparse)
        model = helper.make_model(graph, producer_name="made", doc_string="told")
        helper.set_model_props(model, {"key": "value"})
        path = folder / "model.onnx"
        how: dict[str, Any] = {}
        if self.is_external:
            how = {"save_as_external_data": True, "size_threshold": 0, "location": "weights.bin"}
        onnx.save(model, path, **how)
        return [path]

    def _odd(self, onnx: Any) -> list[Any]:
        """Return elements NumPy has no name for, of those this release of onnx knows."""
        tensors = []
        for kind in self._ODD:
            values = np.arange(16).astype(getattr(ml_dtypes, kind)).reshape(2, 8)
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                raw = onnx.numpy_helper.from_array(values, f"raw/{kind}")
                if onnx.numpy_helper.to_array(raw).dtype != values.dtype:
                    continue  # older releases give other elements
                tensors.append(raw)
                zeros_and_ones = np.arange(16, dtype=np.float32) % 2
                name = f"typed/{kind}"
                tensors.append(onnx.helper.make_tensor(name, raw.data_type, (2, 8), zeros_and_ones))
        return tensors

    def _sparse(self, helper: Any, kinds: Any) -> list[Any]:
        made = []
        for name, dims, indices in (("linear", (2,), [1, 7]), ("pairs", (2, 2), [0, 1, 1, 3])):
            values = helper.make_tensor(name, kinds.FLOAT, (2,), [1.0, 2.0])
            where = helper.make_tensor("", kinds.INT64, dims, indices)
            made.append(helper.make_sparse_tensor(values, where, [3, 4]))
        return made

    def read(self, path: Path) -> Held:
        onnx = library("onnx")
        model = onnx.load(path)
        as_array = onnx.numpy_helper.to_array
        tensors, notes = {}, {}
        for tensor in model.graph.initializer:
            values = np.asarray(as_array(tensor))
            kind = onnx.TensorProto.DataType.Name(tensor.data_type)
            if kind in ("INT4", "UINT4", "INT2", "UINT2"):
                values = values.astype(np.int8 if kind[0] == "I" else np.uint8)
                notes[tensor.name] = {"onnx.data_type": kind}
            tensors[tensor.name] = dense(values)
        for sparse in model.graph.sparse_initializer:
            shape = tuple(sparse.dims)
            where = as_array(sparse.indices)
            coords = where.T if where.ndim > 1 else np.array(np.unravel_index(where, shape))
            parts = {"coords": coords, "values": as_array(sparse.values)}
            seen = {role: part(role, np.ascontiguousarray(one)) for role, one in parts.items()}
            tensors[sparse.values.name] = Seen(shape, seen)
        attributes = {
            "producer_name": model.producer_name,
            "graph": model.graph.name,
            "doc_string": model.doc_string,
            "opset_import": {one.domain or "ai.onnx": one.version for one in model.opset_import},
            "metadata_props": {one.key: one.value for one in model.metadata_props},
        }
        return Held(tensors, attributes, notes)

    def is_kind(self, path: Path) -> bool:
        return path.name.startswith("external_") is self.is_external


class ExternalOnnx(Onnx):
    """Initializers in a file beside the model."""

    title = "ONNX, external data"
    is_external = True

    def places(self, path: Path) -> list[Place]:
        """Return the model's entry for the other file."""
        places = []
        for tensor in library("onnx").load(path, load_external_data=False).graph.initializer:
            where = {entry.key: entry.value for entry in tensor.external_data}
            if where:
                beside = path.parent / where["location"]
                numbers = int(where.get("offset", 0)), int(where["length"])
                places.append(Place(tensor.name, beside, *numbers, has_checksum=False))
        assert places, "nothing is external"
        return places

    def hostile(self, folder: Path) -> list[Path]:
        """Return samples of the corpus, and links out of the folder to good data."""
        onnx, inside = library("onnx"), folder / "inside"
        inside.mkdir()
        (folder / "secret").mkdir()
        (folder / "secret/data").write_bytes(bytes(8))
        with contextlib.suppress(OSError):  # Windows lets few users make links
            (inside / "link").symlink_to("../secret/data")
            (inside / "folder").symlink_to("../secret", target_is_directory=True)
        made = []
        for number, location in enumerate(("link", "folder/data", "../secret/data", "not_there")):
            tensor = onnx.TensorProto(name="a", data_type=onnx.TensorProto.FLOAT, dims=[2])
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=location)
            model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
            made.append(inside / f"{number}.onnx")
            made[-1].write_bytes(model.SerializeToString())
        return super().hostile(folder) + made


FORMATS: tuple[Format, ...] = (
    *(ZTensor(version) for version in ("1.2.0", "1.1.0", "0.1.0")),
    *(
        Safetensors(),
        Sharded(),
        Npy(),
        Npz(),
        DeflatedNpz(),
        TorchZip(),
        TorchLegacy(),
        Gguf(),
    ),
    *(Hdf5(), ChunkedHdf5(), Keras(), Onnx(), ExternalOnnx()),
)


def missing(format_: Format) -> list[str]:
    """Return the libraries of a format that are not installed."""
    return [name for name in format_.libraries if importlib.util.find_spec(name) is None]
