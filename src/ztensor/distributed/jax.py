"""`save_sharded`: save arrays that are spread over processes, without gathering them.

Every process writes the shards of which it has the first replica into files of its own. When all
have written, process 0 writes the root. `load_file` reads the result under any sharding, with any
number of processes.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ztensor import Tensor
from ztensor.distributed.committing import commit, record_from_bytes, record_to_bytes
from ztensor.distributed.part import PartWriter
from ztensor.distributed.place import Place
from ztensor.distributed.root import encode_values
from ztensor.errors import (
    ArgumentValueError,
    SourceError,
    ZTensorError,
    describe,
)
from ztensor.ext import cbor
from ztensor.jax.values import is_value, require_readable, stored
from ztensor.options import PartOptions, require_options
from ztensor.training import tree as saved
from ztensor.typing import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    Exchange = Callable[[bytes], Sequence[bytes]]

__all__ = ["leaf_names", "save_sharded"]

_DONE, _FAILED = b"\1", b"\0"
_LEAST_BYTES = 4096
_MESSAGE_BYTES = 1 << 20  # gRPC accepts four times as much
_MILLISECONDS = 60_000  # for a message that is there


def save_sharded(
    tree: object,
    folder: Path,
    *,
    overwrite: bool = True,
    values: Mapping[str, object] | None = None,
    process_index: int | None = None,
    exchange: Exchange | None = None,
    **options: Unpack[PartOptions],
) -> None:
    """Save arrays that may be spread over processes as a distributed checkpoint; all call it.

    Each process writes the shards of which it has the first replica, so each shard is written once.
    Process 0 then writes the root, which replaces the old checkpoint of the folder in one step.
    `load_file(folder, sharding=...)` reads it under any other sharding, and `ztensor.open(folder)`
    gives whole tensors.

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
            returns their bytes in the order of processes. By default JAX's own collectives.
        options: see `ztensor.typing.PartOptions`.

    Raises:
        NotRepresentableError: a leaf cannot be stored, such as a key of random numbers; the error
            names it.
        ArgumentTypeError: an array is traced or deleted.
        ArgumentValueError: two leaves have one name, or another argument has an unknown value.
        UsageError: the shards leave gaps or overlap, the processes disagree about an array, or
            there is a checkpoint and `overwrite` is False.
        SourceError: this or another process could not write; every process raises then. The
            earlier checkpoint stays.
    """
    require_options("save_sharded", options, PartOptions)
    own = jax.process_index() if process_index is None else process_index
    share = _gathered if exchange is None else exchange
    leaves: list[tuple[str, Any]] = []
    plain: dict[str, object] = {}

    def look() -> bytes:
        leaves.extend(_named(tree))
        plain.update(_plain(leaves, values or {}))
        Place(folder, options.get("storage")).make()
        names = [name for name, leaf in leaves if _is_of_one_process(leaf)]
        return cbor.encode([secrets.token_bytes(16), *names])

    listed: list[Any] = [cbor.decode(one) for one in _together(share, look)]
    whole = _each_first(listed)
    tokens = [one.hex() for one in listed[0] if isinstance(one, bytes)]
    store = _ToFirst.of(tokens[0]) if exchange is None and tokens else None
    with contextlib.ExitStack() as kept:  # while the writer lives, clean-ups leave its files

        def write() -> bytes:
            save_id = tokens[0] if tokens else None  # the token of process 0 names the save
            part = PartWriter(
                folder, process=own, save_id=save_id, processes=len(listed), **options
            )
            writer = kept.enter_context(part)
            for name, leaf in leaves:
                if name not in plain:
                    _write(writer, name, leaf, is_ours=whole.get(name, own) == own)
            record = record_to_bytes(writer.finish())
            return record if store is None else store.put(own, record)

        records = _together(share, write)

        def end() -> bytes:
            if own == 0:
                given = records if store is None else map(store.take, range(len(records)), records)
                commit(
                    folder,
                    map(record_from_bytes, given),
                    plain,
                    overwrite=overwrite,
                    durable=options.get("durable", "auto"),
                    storage=options.get("storage"),
                    writer="jax",
                )
            return b""

        _together(share, end)


def leaf_names(tree: object) -> object:
    """Return a tree with the names of the leaves, as `save_sharded` saves them.

    With the result of `load_file` it makes a tree of arrays again:
    `jax.tree.map(arrays.__getitem__, leaf_names(tree))`.

    Args:
        tree: any tree of JAX, of arrays or placeholders.

    Raises:
        ArgumentValueError: two leaves have one name.
    """
    names = [name for name, _ in _named(tree)]
    found: object = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), names)
    return found


def laid_over(into: object, found: Mapping[str, Any]) -> object:
    """Return a tree like `into` with the loaded leaves.

    Args:
        into: a live tree of arrays, or of objects with their `shape` and `dtype`.
        found: loaded arrays and plain values by name.

    Raises:
        ArgumentValueError: the names differ, or an array has another shape or element type.
    """
    named = _named(into)
    names = [name for name, _ in named]
    more = sorted(set(found) - set(names))
    for name, leaf in named:
        if name not in found:
            raise ArgumentValueError("the checkpoint has no such leaf", object_name=name)
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            saved.fit(leaf, found[name])
    if more:
        message = "the checkpoint has more leaves than the tree"
        raise ArgumentValueError(message, found=describe(more))
    structure = jax.tree_util.tree_structure(into)
    whole: object = jax.tree_util.tree_unflatten(structure, [found[name] for name in names])
    return whole


# --- Leaves ----------------------------------------------------------------------------------


def _named(tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a tree with their names, in JAX's order.

    Raises:
        ArgumentValueError: two have one name.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda one: isinstance(one, Tensor) or is_value(one)
    )
    seen: set[str] = set()
    named = []
    for path, leaf in leaves:
        name = ".".join(map(_word, path))
        if name in seen:
            raise ArgumentValueError("two leaves of the tree have one name", object_name=name)
        seen.add(name)
        named.append((name, leaf))
    return named


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
    return is_value(leaf) or isinstance(leaf, (np.ndarray, np.generic, Tensor))


def _is_of_one_process(leaf: Any) -> bool:
    """Return whether one process has all of an array, so that others may have it as well."""
    return _is_array(leaf) and not (isinstance(leaf, jax.Array) and not leaf.is_fully_addressable)


def _each_first(every: list[Any]) -> dict[str, int]:
    """Return for each whole array the first process that has it, which writes it."""
    first: dict[str, int] = {}
    for process, names in enumerate(every):
        for name in names:
            if isinstance(name, str):
                first.setdefault(name, process)
    return first


def _write(writer: PartWriter, name: str, leaf: Any, *, is_ours: bool) -> None:
    """Write the shards of an array that belong to this process.

    Raises:
        ZTensorError: it cannot be stored, by its name.
    """
    if not is_ours:
        return
    try:
        if isinstance(leaf, jax.Array):
            require_readable(leaf)
            for shard in leaf.addressable_shards:
                if shard.replica_id == 0:
                    _write_shard(writer, name, leaf, shard)
        else:
            writer.add(name, stored(leaf) if is_value(leaf) else leaf)
    except ZTensorError as error:
        raise error.locate(object_name=name) from error.__cause__


def _write_shard(writer: PartWriter, name: str, array: Any, shard: Any) -> None:
    offsets = tuple(part.start or 0 for part in shard.index)
    writer.add(name, np.asarray(shard.data), shape=tuple(array.shape), offsets=offsets)


# --- Processes -------------------------------------------------------------------------------


def _together(share: Exchange, work: Callable[[], bytes]) -> list[bytes]:
    """Do a step in all processes and return their answers, unless one failed.

    Raises:
        SourceError: another process failed, or cannot be reached.
        Exception: the error of this process.
    """
    failure: Exception | None = None
    try:
        answer = _DONE + work()
    except Exception as error:  # noqa: BLE001  # the others wait for this answer
        failure = error
        answer = _FAILED + f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    try:
        answers = [bytes(other) for other in share(answer)]
    except RuntimeError as error:  # JAX raises a subclass
        if failure is not None:
            raise failure from None
        raise SourceError(
            "the processes cannot reach one another", found=describe(str(error), 200)
        ) from error
    if failure is not None:
        raise failure
    for process, other in enumerate(answers):
        if other[:1] != _DONE:
            raise SourceError(
                f"nothing was saved: process {process} failed",
                found=describe(other[1:].decode("utf-8", "replace"), 400),
            )
    return [other[1:] for other in answers]


def _gathered(own: bytes) -> Sequence[bytes]:
    """Return the bytes of every process, by JAX's collectives."""
    if jax.process_count() == 1:
        return [own]
    from jax.experimental import multihost_utils

    lengths = multihost_utils.process_allgather(np.array([len(own)], np.uint32)).reshape(-1)
    # JAX compiles the exchange for each length, so lengths are rounded up to few.
    padded = np.zeros(max(_LEAST_BYTES, 1 << int(lengths.max()).bit_length()), np.uint8)
    padded[: len(own)] = np.frombuffer(own, np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded))
    rows = rows.reshape(len(lengths), len(padded))
    return [row[:length].tobytes() for row, length in zip(rows, lengths.tolist(), strict=True)]


class _ToFirst:
    """Sends records to process 0 alone, through the store of JAX's coordinator.

    JAX's collectives would send every record to every process: hundreds of megabytes for a thousand
    processes, though only the committing one needs them.

    Args:
        client: client of the store.
        key: key of this save.
    """

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = f"ztensor/{key}"

    @classmethod
    def of(cls, key: str) -> _ToFirst | None:
        """Return the store, None for a single process, or if JAX has no such store."""
        try:
            from jax._src.distributed import global_state  # as Orbax does

            client = global_state.client
        except (ImportError, AttributeError):
            return None
        needed = ("key_value_set_bytes", "blocking_key_value_get_bytes", "key_value_delete")
        if jax.process_count() == 1 or not all(hasattr(client, name) for name in needed):
            return None
        return cls(client, key)

    def put(self, process: int, record: bytes) -> bytes:
        """Leave a record for process 0; return the message by which it takes the record.

        Raises:
            SourceError: the store cannot be reached.
        """
        starts = range(0, len(record), _MESSAGE_BYTES)
        for number, start in enumerate(starts):
            data = record[start : start + _MESSAGE_BYTES]
            self._asked(self._client.key_value_set_bytes, self._of(process, number), data)
        return cbor.encode(len(starts))

    def take(self, process: int, message: bytes) -> bytes:
        """Return the record of a process, and remove it from the store.

        Raises:
            SourceError: the store cannot be reached.
        """
        count: Any = cbor.decode(message)
        record = bytearray()
        for number in range(count):
            key = self._of(process, number)
            record += self._asked(self._client.blocking_key_value_get_bytes, key, _MILLISECONDS)
            self._asked(self._client.key_value_delete, key)
        return bytes(record)

    def _of(self, process: int, number: int) -> str:
        return f"{self._key}/{process}/{number}"

    def _asked(self, ask: Callable[..., Any], *arguments: object) -> Any:
        try:
            return ask(*arguments)
        except RuntimeError as error:  # JAX raises a subclass
            raise SourceError(
                "the processes cannot reach one another", found=describe(str(error), 200)
            ) from error
