"""`State`: the tensors of a model by name, from a file or from memory, and their ids.

An id of a tensor or of a state is computed as `ztensor hash` does it, with either of two
algorithms: see `ztensor.insight.tensor_hashes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from ztensor import Tensor
from ztensor import open as open_reader
from ztensor.errors import ArgumentTypeError
from ztensor.ext import (
    ALGORITHMS,
    FRAMEWORKS,
    LAYOUTS,
    LOGICAL_TYPES,
    STORAGE_TYPES,
    Blocks,
    Component,
    ObjectReader,
    cbor,
    element_count,
    run_jobs,
    spell,
    thread_count,
    typed_array,
)
from ztensor.typing import Array, Readable, TensorLike

# Attributes of these layouts are the user's; attributes of others define the values.
PLAIN_LAYOUTS = frozenset({"dense", "sparse_csr", "sparse_coo"})
_WORD = "ztensor content 1"


def _xxh3_128() -> Any:
    import xxhash  # takes as long as NumPy's small modules; sha256 does not need it

    return xxhash.xxh3_128()


HASHERS: dict[str, Callable[[], Any]] = {
    "sha256": ALGORITHMS["sha256"].hasher,
    "xxh3-128": _xxh3_128,
}
IDS = {"sha256": 32, "xxh3-128": 16}  # algorithm to bytes of an id


class State(Mapping[str, Tensor]):
    """The tensors of a model by name.

    A tensor of a file is read when it is looked up: a view of the file where its bytes are stored
    raw. A tensor of memory shares the caller's memory on the CPU.

    Args:
        source: anything `ztensor.open` takes, an open reader, or a mapping from names to arrays,
            tensors of a framework or `ztensor.Tensor`.

    Attributes:
        name: the path of the file, or words for a mapping.
        has_attributes: whether it is a file, which has key-value pairs of its own.
        attributes: these; empty for a mapping.
        reader: the open reader; None for a mapping.
    """

    def __init__(self, source: Readable | Mapping[str, TensorLike]) -> None:
        self.reader: ObjectReader | None = None
        self._values: Mapping[str, Any] = {}
        self._is_ours = False
        if isinstance(source, ObjectReader):
            self.reader = source
        elif isinstance(source, Mapping):
            self._values = dict(source)
        else:
            self.reader, self._is_ours = open_reader(source), True
        self.name = "a mapping of tensors" if self.reader is None else self.reader.name
        self.has_attributes = self.reader is not None
        self.attributes = {} if self.reader is None else self.reader.attributes
        self._ids: dict[tuple[str, str], bytes] = {}

    @classmethod
    def of(cls, source: Readable | Mapping[str, TensorLike]) -> State:
        """Return a state; a state as it is, with the ids that it has computed."""
        return source if isinstance(source, cls) else cls(source)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor.

        Raises:
            ObjectNotFoundError: the file has no object of that name.
            KeyError: the mapping has no such name.
        """
        if self.reader is not None:
            return self.reader.read(name)
        return _tensor(name, self._values[name])

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the file or mapping."""
        return iter(self._values if self.reader is None else self.reader)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._values if self.reader is None else self.reader)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a tensor of that name; none is read."""
        return name in (self._values if self.reader is None else self.reader)

    def element_count(self, name: str) -> int:
        """Return the number of elements of a tensor; no data of a file is read."""
        described = self[name] if self.reader is None else self.reader.metadata(name)
        return element_count(described.shape)

    def places(self, name: str) -> frozenset[tuple[object, ...]]:
        """Return where the bytes of a tensor are: names of tied tensors have the same places."""
        if self.reader is not None:
            part = self.reader.objects.part(name)
            components = part.object(name).components.values()
            return frozenset((id(part), c.offset, c.length) for c in components if c.length)
        arrays = self[name].components.values()
        return frozenset((a.__array_interface__["data"][0], a.nbytes) for a in arrays if a.nbytes)

    def __enter__(self) -> Self:
        """Return the state itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file, if this state opened it."""
        if self._is_ours and self.reader is not None:
            self.reader.close()

    def ids(
        self, algorithm: str, names: Iterable[str] | None = None, threads: int | None = None
    ) -> dict[str, bytes]:
        """Return the ids of tensors; each is computed once.

        Args:
            algorithm: one of `IDS`.
            names: the tensors; all by default.
            threads: how many compute; None uses the cores, at most four.
        """
        wanted = list(self if names is None else names)
        found = self._ids

        def compute(name: str) -> None:
            found[algorithm, name] = tensor_id(self[name], algorithm)

        missing = [name for name in wanted if (algorithm, name) not in found]
        jobs = (functools.partial(compute, name) for name in missing)
        run_jobs(jobs, thread_count(threads))
        return {name: found[algorithm, name] for name in wanted}


def tensor_id(tensor: Tensor, algorithm: str) -> bytes:
    """Return the id of a tensor: 32 bytes by sha256, 16 by xxh3-128."""
    digests = {}
    for role, header in headers_of(tensor).items():
        hasher = ComponentHasher(tensor.format, role, header, algorithm)
        for block in Blocks.of(tensor.components[role]):
            hasher.update(block)
        digests[role] = hasher.digest()
    return id_of_digests(tensor.shape, tensor.format, digests, tensor.attributes, algorithm)


def id_of_digests(
    shape: Iterable[int],
    layout: str,
    digests: Mapping[str, list[object]],
    attributes: Mapping[str, Any],
    algorithm: str,
) -> bytes:
    """Return the id of a tensor from what `ComponentHasher.digest` gives for each component."""
    own = {} if layout in PLAIN_LAYOUTS else dict(attributes)
    return _digest([list(shape), layout, dict(digests), own], algorithm)


class ComponentHasher:
    """The digest of one component, as it is part of a tensor's id.

    Args:
        layout: the tensor's layout.
        role: the component's role.
        header: its type.
        algorithm: one of `IDS`.
    """

    def __init__(self, layout: str, role: str, header: Header, algorithm: str) -> None:
        known = LAYOUTS.get(layout)
        self._word = header.type or header.dtype
        self._hasher = HASHERS[algorithm]()
        self._index: np.dtype[Any] | None = None
        if known is not None and role in known.index_roles:
            self._index, self._word = header.stored_dtype, "u64"

    def update(self, block: memoryview) -> None:
        """Take the next stored bytes: whole elements."""
        if self._index is not None:  # indices of all widths have one id
            indices = np.frombuffer(block, self._index.newbyteorder("<"))
            block = indices.astype("<u8").data.cast("B")
        self._hasher.update(block)

    def digest(self) -> list[object]:
        """Return the word for the type, and the digest."""
        return [self._word, self._hasher.digest()]


def content_id(ids: Mapping[str, bytes], algorithm: str) -> str:
    """Return the id of a state from the ids of its tensors, as `algorithm:digits`."""
    return f"{algorithm}:{_digest([_WORD, dict(ids)], algorithm).hex()}"


class Header(NamedTuple):
    """The type and length of a component.

    Attributes:
        dtype: the storage type's short name.
        type: the logical type's name, or None.
        nbytes: the length of its stored bytes: little-endian, elements of less than a byte packed.
    """

    dtype: str
    type: str | None
    nbytes: int

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the stored elements, see `stored_form`."""
        return self._replace(nbytes=0).empty().dtype

    def empty(self) -> Array:
        """Return new memory for the stored elements: flat, see `stored_form`."""
        logical = None if self.type is None else LOGICAL_TYPES.get(self.type)
        ratio = logical and (logical.storage_per_element, logical.elements_per_storage)
        stored = self if ratio in (None, (1, 1)) else self._replace(type=None)
        return stored.restored(np.empty(self.nbytes, np.uint8))

    def restored(self, stored: Array) -> Array:
        """Return the flat array of a component from its stored elements; a view if possible."""
        component = Component(self.dtype, 0, self.nbytes, type=self.type)
        return typed_array(component, stored.view(np.uint8).data)

    def nbytes_of(self, count: int) -> int:
        """Return the stored bytes of so many elements of this type."""
        logical = None if self.type is None else LOGICAL_TYPES.get(self.type)
        stored = count if logical is None else logical.storage_count(count)
        return stored * STORAGE_TYPES[self.dtype].width


def headers_of(tensor: Tensor) -> dict[str, Header]:
    """Return the type and length of each component of a tensor."""
    layout = LAYOUTS.get(tensor.format)
    headers = {}
    for role, array in tensor.components.items():
        storage, logical = spell(array.dtype)
        nbytes = Header(storage, logical, 0).nbytes_of(array.size)
        if layout is not None and role == layout.main_role:
            logical = tensor.type
        headers[role] = Header(storage, logical, nbytes)
    return headers


def stored_form(array: Array) -> Array:
    """Return the stored elements of a component: flat, little-endian; a view if possible.

    Elements of less than a byte are packed, and become uint8; complex ones become pairs of floats;
    other dtypes stay.
    """
    stored = Blocks.whole(array)
    return stored.view(f"<f{stored.itemsize // 2}") if stored.dtype.kind == "c" else stored


def _digest(content: Any, algorithm: str) -> bytes:
    hasher = HASHERS[algorithm]()
    hasher.update(cbor.encode(content))
    digest: bytes = hasher.digest()
    return digest


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    adapter = FRAMEWORKS.adapter_of(value)
    stored = value if adapter is None else adapter.stored(value)
    try:
        return stored if isinstance(stored, Tensor) else Tensor(stored)
    except ArgumentTypeError as error:
        raise error.locate(object_name=name) from None
