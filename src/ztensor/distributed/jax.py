"""`save_sharded`: save arrays that are spread over processes, without gathering them.

Every process writes the shards of which it has the first replica into files of its own. When all
have written, process 0 writes the root. `load_sharded` reads the result under any sharding, with
any number of processes. A save in the background copies the shards first, and does the rest in a
thread.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ztensor import Tensor
from ztensor.distributed.committing import commit, record_from_bytes, record_to_bytes
from ztensor.distributed.part import PartWriter
from ztensor.distributed.place import Place
from ztensor.distributed.root import encode_values
from ztensor.errors import ArgumentValueError, UsageError, ZTensorError
from ztensor.ext import ALGORITHMS, cbor, run_jobs, thread_count
from ztensor.jax.exchange import Coordinator, Exchange, gathered, gathered_in_thread, together
from ztensor.jax.values import is_on_cpu, is_value, require_readable, stored
from ztensor.options import PartOptions, require_options
from ztensor.training.checkpoints.background import BackgroundSave
from ztensor.typing import Path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Unpack

__all__ = ["BackgroundSave", "leaf_names", "save_sharded"]

_SAVES: list[BackgroundSave] = []  # the last one in the background


def save_sharded(
    tree: object,
    folder: Path,
    *,
    overwrite: bool = True,
    values: Mapping[str, object] | None = None,
    process_index: int | None = None,
    exchange: Exchange | None = None,
    background: bool = False,
    **options: Unpack[PartOptions],
) -> BackgroundSave:
    """Save arrays that may be spread over processes as a distributed checkpoint; all call it.

    Each process writes the shards of which it has the first replica, so each shard is written once.
    Process 0 then writes the root, which replaces the old checkpoint of the folder in one step.
    `load_sharded` and `load_file(folder, sharding=...)` read it under any other sharding, and
    `ztensor.open(folder)` gives whole tensors.

    An array that is entirely in one process, such as one of NumPy, is taken to be the same in all
    processes that have it: the first writes it. Plain values are taken from process 0; they are in
    `ztensor.distributed.read_root(folder).values`.

    Args:
        tree: a dict of arrays, or any tree of JAX. Leaves are named by their keys, joined by dots;
            see `leaf_names`.
        folder: a folder that all processes see, made if it is missing, or the URL of a prefix.
        overwrite: False refuses to replace a checkpoint.
        values: more plain values by name, such as those that
            `ztensor.CheckpointManager.save_divided` passes. Process 0 writes them.
        process_index: number of this process; by default `jax.process_index()`.
        exchange: a function that all processes call with bytes; it waits for all of them and
            returns their bytes in the order of processes. By default JAX's own collectives, and for
            the thread of a save in the background the store of JAX's coordinator: collectives of a
            thread and of the training would be mixed up.
        background: True copies the shards of this process to its memory, and writes them in a
            thread: arrays may be changed, donated or deleted as soon as this returns. The folder
            has the old checkpoint until the save has ended in all processes. A second save waits
            for the first, and raises its error if `wait` has not; the end of the program waits.
        options: see `ztensor.typing.PartOptions`.

    Returns:
        The save. `wait()` waits until it has ended and raises its error, once. Without `background`
        it has ended.

    Raises:
        NotRepresentableError: a leaf cannot be stored, such as a key of random numbers; the error
            names it.
        ArgumentTypeError: an array is traced or deleted.
        ArgumentValueError: two leaves have one name, or another argument has an unknown value.
        UsageError: the shards leave gaps or overlap; the processes disagree about an array, or
            about which arrays all of them have; there is a checkpoint and `overwrite` is False; or
            processes that save in the background have neither a coordinator nor `exchange`.
        SourceError: this or another process could not write; every process raises then. The
            earlier checkpoint stays.
    """
    require_options("save_sharded", options, PartOptions)
    while _SAVES:
        _SAVES.pop().wait()
    own = jax.process_index() if process_index is None else process_index
    share = gathered if exchange is None else exchange
    storage, durable = options.get("storage"), options.get("durable", "auto")
    leaves: list[tuple[str, Any]] = []
    plain: dict[str, object] = {}

    def look() -> bytes:
        leaves.extend(named_leaves(tree))
        plain.update(_plain(leaves, values or {}))
        Place(folder, storage).make()
        names = [name for name, leaf in leaves if _is_of_one_process(leaf)]
        return cbor.encode([secrets.token_bytes(16), _digest_of_all(leaves), *names])

    listed: list[Any] = [cbor.decode(one) for one in together(share, look)]
    _require_same([one[1] for one in listed])
    whole, save_id = _each_first(listed)
    chunks = _chunks((n, leaf) for n, leaf in leaves if n not in plain and whole.get(n, own) == own)
    store = Coordinator.of(save_id) if exchange is None and save_id else None
    if background:
        chunks, plain = _copied(share, chunks), copy.deepcopy(plain)
        share = gathered_in_thread(store) if exchange is None else exchange

    def write(kept: contextlib.ExitStack) -> bytes:
        part = PartWriter(folder, process=own, save_id=save_id, processes=len(listed), **options)
        record = _written(kept.enter_context(part), chunks)
        return record if store is None else store.put(f"part/{own}", record)

    def end(records: list[bytes]) -> bytes:
        if own == 0:
            parts = (store.take(f"part/{n}") if store else one for n, one in enumerate(records))
            how: Any = {"overwrite": overwrite, "durable": durable, "storage": storage}
            commit(folder, map(record_from_bytes, parts), plain, writer="jax", **how)
        return b""

    def save() -> None:
        with contextlib.ExitStack() as kept:  # while the writer lives, clean-ups leave its files
            records = together(share, functools.partial(write, kept))
            together(share, functools.partial(end, records))

    saving = BackgroundSave(save if background else None, Place(folder, storage).name)
    if background:
        _SAVES.append(saving)
    (saving.start if background else save)()
    return saving


def leaf_names(tree: object) -> object:
    """Return a tree with the names of the leaves, as `save_sharded` saves them.

    With the result of `load_file` it makes a tree of arrays again:
    `jax.tree.map(arrays.__getitem__, leaf_names(tree))`.

    Args:
        tree: any tree of JAX, of arrays or placeholders.

    Raises:
        ArgumentValueError: two leaves have one name.
    """
    names = [name for name, _ in named_leaves(tree)]
    structure = jax.tree_util.tree_structure(tree, is_leaf=is_leaf)
    found: object = jax.tree_util.tree_unflatten(structure, names)
    return found


# --- Leaves ----------------------------------------------------------------------------------


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a tree with their names, in JAX's order.

    Raises:
        ArgumentValueError: two have one name.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    seen: set[str] = set()
    named = []
    for path, leaf in leaves:
        name = ".".join(map(_word, path))
        if name in seen:
            raise ArgumentValueError("two leaves of the tree have one name", object_name=name)
        seen.add(name)
        named.append((name, leaf))
    return named


def is_leaf(value: object) -> bool:
    """Return whether a value is a leaf, though JAX would take it apart: a sparse matrix is."""
    return isinstance(value, Tensor) or is_value(value)


def _word(key: Any) -> str:
    for field in ("key", "name", "idx"):
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


def _plain(leaves: list[tuple[str, Any]], values: Mapping[str, object]) -> dict[str, object]:
    """Return the leaves that are not arrays, and further values.

    Raises:
        ArgumentValueError: a leaf has the name of a value.
        NotRepresentableError: a value cannot be kept.
    """
    plain = {name: leaf for name, leaf in leaves if not _is_array(leaf)}
    for name, value in values.items():
        if any(name == one for one, _ in leaves):
            raise ArgumentValueError("a leaf of the tree has this name", object_name=name)
        plain[name] = value
    encode_values(plain)
    return plain


def _is_array(leaf: Any) -> bool:
    return is_leaf(leaf) or isinstance(leaf, (np.ndarray, np.generic))


def _is_of_one_process(leaf: Any) -> bool:
    """Return whether one process has all of an array, so that others may have it as well."""
    return _is_array(leaf) and not (isinstance(leaf, jax.Array) and not leaf.is_fully_addressable)


def _digest_of_all(leaves: list[tuple[str, Any]]) -> bytes:
    """Return a digest of the names of arrays that are distributed over all processes."""
    count = jax.process_count()
    names = sorted(
        name
        for name, leaf in leaves
        if isinstance(leaf, jax.Array)
        and len({device.process_index for device in leaf.sharding.device_set}) == count
    )
    return ALGORITHMS["sha256"].of([cbor.encode(names)]).encode()


def _require_same(digests: list[object]) -> None:
    """Raise unless all processes have the same arrays of all processes."""
    others = [process for process, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise UsageError(
            f"the trees of process 0 and of process {others[0]} have different arrays of all "
            "processes"
        )


def _each_first(every: list[Any]) -> tuple[dict[str, int], str | None]:
    """Return for each whole array the first process that has it, which writes it; and a save id.

    The id is the token of process 0, None without one.
    """
    first: dict[str, int] = {}
    for process, names in enumerate(every):
        for name in names:
            if isinstance(name, str):
                first.setdefault(name, process)
    return first, next((one.hex() for one in every[0] if isinstance(one, bytes)), None)


def _written(writer: PartWriter, chunks: Iterable[_Chunk]) -> bytes:
    """Write chunks, and return the record of the part."""
    for name, value, box in chunks:
        with _located(name):
            writer.add(name, np.asarray(value) if isinstance(value, jax.Array) else value, **box)
    return record_to_bytes(writer.finish())


class _Chunk(NamedTuple):
    """A chunk that this process writes.

    Attributes:
        name: the array's name.
        value: the elements: an array, a `Tensor`, or a shard as an array of JAX.
        box: for a shard the shape of the whole array, and the offsets.
    """

    name: str
    value: Any
    box: dict[str, tuple[int, ...]]


def _chunks(leaves: Iterable[tuple[str, Any]]) -> Iterable[_Chunk]:
    """Yield the chunks of the arrays that this process has to write.

    Raises:
        ZTensorError: an array cannot be stored, by its name.
    """
    for name, leaf in leaves:
        with _located(name):
            if isinstance(leaf, jax.Array):
                require_readable(leaf)
                for shard in leaf.addressable_shards:
                    if shard.replica_id == 0:
                        offsets = tuple(part.start or 0 for part in shard.index)
                        box = {"shape": tuple(leaf.shape), "offsets": offsets}
                        yield _Chunk(name, shard.data, box)
            else:
                yield _Chunk(name, stored(leaf) if is_value(leaf) else leaf, {})


@contextlib.contextmanager
def _located(name: str) -> Iterator[None]:
    try:
        yield
    except ZTensorError as error:
        raise error.locate(object_name=name) from error.__cause__


def _copied(share: Exchange, chunks: Iterable[_Chunk]) -> list[_Chunk]:
    """Return copies of chunks in memory that is not shared with JAX; all processes call it.

    Raises:
        Exception: the error of this process.
        SourceError: another process failed.
    """
    every: list[_Chunk] = []

    def fetch(number: int) -> None:
        every[number] = every[number]._replace(value=_copy(every[number].value))

    def work() -> bytes:
        every.extend(chunks)
        for chunk in every:
            if isinstance(chunk.value, jax.Array):
                chunk.value.copy_to_host_async()  # all transfers run at once
        workers = thread_count(lengths=[chunk.value.nbytes for chunk in every])
        run_jobs((functools.partial(fetch, number) for number in range(len(every))), workers)
        return b""

    together(share, work)
    return every


def _copy(value: Any) -> Any:
    """Return elements in new memory: the CPU's arrays of JAX are views of its buffers."""
    if not isinstance(value, jax.Array):
        return copy.deepcopy(value)
    is_device = value.sharding.memory_kind == "device" and not is_on_cpu(*value.devices())
    return np.asarray(value) if is_device else np.array(value)
