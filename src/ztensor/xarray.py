"""The engine `ztensor` of xarray: `xarray.open_dataset("run.zt")`; `save_dataset` writes one.

xarray finds it by the entry point of this distribution in the group `xarray.backends`.
"""

from __future__ import annotations

import asyncio
import operator
import os
import warnings
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ztensor import Reader, TensorMetadata, TensorSlice, Writer
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentTypeError,
    FormatError,
    MissingDependencyError,
    Reason,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.ext import LAYOUTS, Quantized, is_remote
from ztensor.options import require_options
from ztensor.typing import Array, Openable, Storage, Target, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

try:
    from xarray import Dataset, Variable, conventions
    from xarray.backends import (
        AbstractDataStore,
        BackendArray,
        BackendEntrypoint,
        StoreBackendEntrypoint,
    )
    from xarray.core import indexing
except ImportError as error:
    raise MissingDependencyError("ztensor.xarray needs xarray", install="xarray") from error

__all__ = ["Backend", "save_dataset"]

# The attribute of an object that names its axes, as xarray writes it to Zarr.
_DIMENSIONS = "_ARRAY_DIMENSIONS"
_DECODERS = (
    *("mask_and_scale", "decode_times", "concat_characters", "decode_coords", "use_cftime"),
    "decode_timedelta",
)
_NUMBERS = ("scale_factor", "add_offset")  # xarray computes with them when elements are read
# What xarray raises for attributes that do not follow its conventions.
_ON_BAD_ATTRIBUTES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class Backend(BackendEntrypoint):  # type: ignore[misc]  # xarray is untyped here
    """The engine: each dense object of a file is a variable, read when it is used.

    An index reads only its part. The attribute `_ARRAY_DIMENSIONS` of an object names its axes, as
    in Zarr; without it they are `NAME_dim_0`, `NAME_dim_1` and so on. Attributes are decoded by the
    CF conventions, as xarray does for other engines. Only names that end in `.zt` are guessed.
    """

    description = "Open zTensor files, safetensors, GGUF, NumPy, torch and others"
    open_dataset_parameters = ("drop_variables", *_DECODERS)

    def guess_can_open(self, filename_or_obj: object) -> bool:
        """Return whether a path or URL ends in `.zt`."""
        is_path = isinstance(filename_or_obj, (str, os.PathLike))
        return is_path and str(filename_or_obj).partition("?")[0].endswith(".zt")

    def open_dataset(
        self,
        filename_or_obj: Openable,
        *,
        drop_variables: str | Iterable[str] | None = None,
        dequantize: bool = False,
        verify: bool | None = None,
        storage: Storage | None = None,
        storage_options: Mapping[str, object] | None = None,
        **decoders: object,
    ) -> Dataset:
        """Return the dense objects of a source as a lazy `xarray.Dataset`; closing it closes them.

        Objects that are not dense are left out, with one warning. A variable that is read as a
        whole is checked against its digest; nothing is mapped.

        Args:
            filename_or_obj: a source of `ztensor.open`, in any format that it opens.
            drop_variables: names of objects to leave out.
            dequantize: True has quantized objects as variables of float32. An index dequantizes the
                whole object.
            verify: True checks an object before a part of it is returned, False checks none.
            storage: see `ztensor.typing.OpenOptions`.
            storage_options: see there.
            decoders: xarray's own, such as `mask_and_scale` and `decode_times`.

        Raises:
            FormatError: the file is damaged, or names of dimensions do not fit its objects.
            SourceError: it cannot be read.
        """
        for option in decoders.keys() - {*_DECODERS}:
            raise ArgumentTypeError(f"open_dataset() got an unexpected keyword argument {option!r}")
        reader = open_reader(
            filename_or_obj,
            verify=verify,
            mmap=False,
            storage=storage,
            storage_options=storage_options,
        )
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or ()
        store = _Store(reader, frozenset(dropped), dequantize=dequantize)
        store.scaled = decoders.get("mask_and_scale")
        try:
            return StoreBackendEntrypoint().open_dataset(store, **decoders)
        except BaseException as error:
            reader.close()
            if isinstance(error, ZTensorError) or not isinstance(error, _ON_BAD_ATTRIBUTES):
                raise
            raise FormatError(
                "xarray cannot describe the file; decode_cf=False does not decode attributes",
                reason=Reason.FIELD_VALUE,
                file=reader.name,
                found=describe(f"{type(error).__name__}: {error}", 200),
            ) from error


def save_dataset(
    dataset: Dataset,
    filename: Target,
    compression: bool | int | str = False,  # noqa: FBT001, FBT002  # as for `save_file`
    **options: Unpack[WriteOptions],
) -> None:
    """Save an `xarray.Dataset` as a zTensor file; an old file is replaced atomically.

    Variables, coordinates, dimensions and attributes come back from `xarray.open_dataset`. Times
    and masks are encoded by the CF conventions. Variables of Dask are computed one after the other.

    Args:
        dataset: the dataset.
        filename: the file; also a file object open for writing bytes.
        compression: see `ztensor.typing.ModelOptions`.
        options: see `ztensor.typing.WriteOptions`.

    Raises:
        NotRepresentableError: a variable or an attribute cannot be stored; no file appears.
        SourceError: the file could not be written. The old file is still there.
    """
    require_options("save_dataset", options, WriteOptions)
    if not isinstance(dataset, Dataset):
        raise ArgumentTypeError(f"dataset must be an xarray.Dataset, not {describe(dataset, 40)}")
    decoded = conventions.encode_dataset_coordinates(dataset)
    variables, attributes = conventions.cf_encoder(*decoded)
    attributes = _plain(attributes)
    with Writer(filename, compression=compression, attributes=attributes, **options) as writer:
        for name, variable in variables.items():
            named = {**_plain(variable.attrs), _DIMENSIONS: list(variable.dims)}
            writer.write(name, np.asarray(variable), attributes=named)


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with lists in the place of arrays."""
    arrays = np.ndarray
    return {k: v.tolist() if isinstance(v, arrays) else v for k, v in attributes.items()}


class _Store(AbstractDataStore):  # type: ignore[misc]  # xarray is untyped here
    """An open file as xarray's store of variables."""

    def __init__(self, reader: Reader, dropped: frozenset[str], *, dequantize: bool) -> None:
        self._reader, self._dropped, self._dequantize = reader, dropped, dequantize
        self.scaled: object = None  # xarray's option `mask_and_scale`
        self.close = reader.close

    def get_attrs(self) -> dict[str, Any]:
        """Return the attributes of the file."""
        return self._reader.attributes

    def get_encoding(self) -> dict[str, Any]:
        """Return the URL without secrets, which xarray would keep."""
        name = self._reader.name
        return {"source": name} if is_remote(name) else {}

    def get_variables(self) -> dict[str, Any]:
        """Return the objects that can be variables; warn of the others."""
        variables, others = {}, []
        for name in self._reader:
            if name in self._dropped:
                continue
            described = self._reader.metadata(name)
            array = self._array(described)
            if array is None:
                others.append(name)
                continue
            attributes = dict(described.attributes)
            axes = [f"{name}_dim_{axis}" for axis in range(len(array.shape))]
            axes = attributes.pop(_DIMENSIONS, axes)
            if not isinstance(axes, list) or len(axes) != len(array.shape):
                raise FormatError(
                    f"{_DIMENSIONS} does not name the axes",
                    reason=Reason.FIELD_VALUE,
                    file=self._reader.name,
                    object_name=name,
                    expected=f"a list of {len(array.shape)} texts",
                    found=describe(axes),
                )
            is_scaled = self.scaled.get(name) if isinstance(self.scaled, dict) else self.scaled
            for key in attributes.keys() & {*_NUMBERS} if is_scaled in (None, True) else ():
                if np.asarray(attributes[key]).dtype.kind not in "biuf":
                    raise FormatError(
                        f"{key} is no number",
                        reason=Reason.FIELD_VALUE,
                        file=self._reader.name,
                        object_name=name,
                        expected="a number; mask_and_scale=False does not use it",
                        found=describe(attributes[key]),
                    )
            variables[name] = Variable(axes, indexing.LazilyIndexedArray(array), attributes)
        if others:
            warnings.warn(
                f"{describe(self._reader.name, 200)}: {len(others)} objects that are not dense are "
                f"left out: {', '.join(map(describe, others[:5]))}; dequantize=True has those that "
                "are quantized",
                UserWarning,
                stacklevel=6,
            )
        return variables

    def _array(self, described: TensorMetadata) -> _Stored | None:
        """Return an object as an array; None if it is not dense, or of an unknown type."""
        layout = described.format
        if self._dequantize and isinstance(LAYOUTS.get(layout), Quantized):
            return _Dequantized(self._reader, described)
        try:
            return _Stored(self._reader.get_slice(described.name)) if layout == "dense" else None
        except UnsupportedError:
            return None


class _Stored(BackendArray):  # type: ignore[misc]  # xarray is untyped here
    """A dense object as an array of xarray."""

    def __init__(self, lazy: TensorSlice) -> None:
        self._lazy, self.shape, self.dtype = lazy, lazy.shape, lazy.dtype

    def __getitem__(self, key: Any) -> Array:
        """Return the part that an indexer of xarray selects."""
        support = indexing.IndexingSupport.OUTER_1VECTOR
        return np.asarray(indexing.explicit_indexing_adapter(key, self.shape, support, self._part))

    async def async_getitem(self, key: Any) -> Array:
        """Return the part that an indexer selects; a thread reads it."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _part(self, key: tuple[Any, ...]) -> Array:
        """Return the part of an index of integers, slices, and at most one array.

        NumPy moves axes of integers beside an array to the front: they are taken afterwards.
        """
        is_axis = [isinstance(each, (slice, np.ndarray)) for each in key]
        wide = tuple(
            each if keeps else slice(operator.index(each), operator.index(each) + 1 or None)
            for each, keeps in zip(key, is_axis, strict=True)
        )
        return self._read(wide)[tuple(slice(None) if keeps else 0 for keeps in is_axis)]

    def _read(self, key: tuple[Any, ...]) -> Array:
        return np.asarray(self._lazy[key])


class _Dequantized(_Stored):
    """A quantized object as an array of float32."""

    def __init__(self, reader: Reader, described: TensorMetadata) -> None:
        self._reader, self._name = reader, described.name
        self.shape, self.dtype = tuple(described.shape), np.dtype(np.float32)

    def _read(self, key: tuple[Any, ...]) -> Array:
        whole = self._reader.read(self._name).dequantize()
        return np.asarray(whole[key])
