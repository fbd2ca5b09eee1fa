"""Exchange bytes between the processes of JAX, by collectives or by its coordinator's store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from ztensor.errors import SourceError, UsageError, describe
from ztensor.ext import cbor

Exchange: TypeAlias = Callable[[bytes], Sequence[bytes]]

_DONE, _FAILED = b"\1", b"\0"
_LAST, _MORE = b"\0", b"\1"  # the first byte of a message
_LEAST_BYTES = 4096
_MESSAGE_BYTES = 1 << 20  # gRPC accepts four times as much
_MILLISECONDS = 7 * 86_400_000  # a process may write for hours; JAX ends all if one is gone


def together(share: Exchange, work: Callable[[], bytes]) -> list[bytes]:
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
    except (RuntimeError, SourceError) as error:  # JAX raises a subclass of the first
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


def gathered(own: bytes) -> Sequence[bytes]:
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


def gathered_in_thread(store: Coordinator | None) -> Exchange:
    """Return the exchange for a thread beside the training.

    Raises:
        UsageError: there are several processes, and no coordinator.
    """
    if store is not None:
        return store.share
    if jax.process_count() > 1:
        raise UsageError(
            "to save in the background, processes need jax.distributed.initialize() or exchange="
        )
    return gathered


class Coordinator:
    """Sends bytes between processes through the store of JAX's coordinator, without collectives.

    Collectives would send the record of every process to all others, hundreds of megabytes for a
    thousand processes, though only the committing one needs them.

    Args:
        client: client of the store.
        key: key of this save.
    """

    _answered: str | None = None  # the last save, whose answers all processes have read

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = f"ztensor/{key}"
        self._steps = 0

    @classmethod
    def of(cls, key: str) -> Coordinator | None:
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

    def put(self, name: str, data: bytes) -> bytes:
        """Leave bytes for other processes, in several messages if they are long; return none.

        Raises:
            SourceError: the store cannot be reached.
        """
        for number, start in enumerate(range(0, max(len(data), 1), _MESSAGE_BYTES)):
            piece = data[start : start + _MESSAGE_BYTES]
            is_last = start + _MESSAGE_BYTES >= len(data)
            message = (_LAST if is_last else _MORE) + piece
            self._asked(self._client.key_value_set_bytes, f"{self._key}/{name}/{number}", message)
        return b""

    def take(self, name: str, *, keep: bool = False) -> bytes:
        """Wait for the bytes of a name and return them; remove them from the store unless `keep`.

        Raises:
            SourceError: the store cannot be reached.
        """
        data = bytearray()
        for number in itertools.count():
            key = f"{self._key}/{name}/{number}"
            message = self._asked(self._client.blocking_key_value_get_bytes, key, _MILLISECONDS)
            data += message[1:]
            if not keep:
                self._asked(self._client.key_value_delete, key)
            if message[:1] == _LAST:
                break
        return bytes(data)

    def share(self, own: bytes) -> Sequence[bytes]:
        """Return the bytes of every process, which process 0 collects; an exchange for a thread."""
        self._steps += 1
        process, answer = jax.process_index(), f"{self._steps}/all"
        if process:
            self.put(f"{self._steps}/{process}", own)
            every: Any = cbor.decode(self.take(answer, keep=True))
            return list(every)
        others = range(1, jax.process_count())
        answers = [own, *(self.take(f"{self._steps}/{other}") for other in others)]
        self.put(answer, cbor.encode(answers))
        older, Coordinator._answered = Coordinator._answered, self._key
        if older not in (None, self._key):
            self._asked(self._client.key_value_delete, older)
        return answers

    def _asked(self, ask: Callable[..., Any], *arguments: object) -> Any:
        try:
            return ask(*arguments)
        except RuntimeError as error:  # JAX raises a subclass
            raise SourceError(
                "the processes cannot reach one another", found=describe(str(error), 200)
            ) from error
