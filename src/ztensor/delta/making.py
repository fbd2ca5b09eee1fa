"""`make`: write the difference of two states."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from ztensor.delta.comparing import Comparison, difference
from ztensor.delta.dialects import DIALECTS, Target
from ztensor.delta.file import DeltaWriter
from ztensor.delta.report import DeltaReport
from ztensor.delta.states import IDS, State
from ztensor.delta.stream import Effort, Values
from ztensor.errors import ArgumentValueError
from ztensor.ext import EMITTERS, Pool, thread_count
from ztensor.options import keeps, require_choice
from ztensor.typing import Durable, Path, Progress, Readable, TensorLike

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def make(
    base: Readable | Mapping[str, TensorLike],
    new: Readable | Mapping[str, TensorLike],
    path: Path,
    *,
    effort: Effort = "fast",
    values: Values = "difference",
    ids: Literal["sha256", "xxh3-128"] = "sha256",
    dialect: Literal["zt", "slime", "arc", "trl"] = "zt",
    version: str | int | None = None,
    checksum: str | bool | None = True,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    label: object = None,
    durable: Durable = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> DeltaReport:
    """Write the difference of two states to a file.

    The same states, options and release of zstd give the same bytes.

    Args:
        base: the state before: anything `ztensor.open` takes, an open reader, or a mapping from
            names to arrays or tensors of a framework.
        new: the state after, likewise.
        path: the new file; of the dialect "slime" the new folder of a version.
        effort: `"fast"`, or `"small"`: fewer bytes for more time; the base is then needed to find
            the positions of the changes.
        values: `"difference"`, or `"new"`: the new elements instead of differences. Such a delta
            can be applied without the base and more than once; it is larger.
        ids: the algorithm of the ids of states and tensors.
        dialect: `"zt"` writes a zTensor file; the others write files of other programs, which only
            change elements of dense tensors and have no label. `effort` is for `"zt"` only.
        version: of the file, as in `ztensor.typing.WriteOptions`; in other dialects the number of
            the new state.
        checksum: of the file, likewise; of tensors in `"slime"`: `"xxh3-128"` (True), `"blake3"` or
            `"adler32"`.
        include: a pattern of names, or several; other tensors stay as they are in `base`.
        exclude: a pattern of names, or several, that stay as they are in `base`.
        label: text or a number to find the delta by, such as a step.
        durable: as in `ztensor.typing.SaveOptions`.
        threads: how many compute and compress; None uses the cores, at most four.
        progress: called with the number of changed tensors written so far and of all of them.

    Raises:
        NotRepresentableError: a tensor cannot be stored.
        DeltaError: the dialect cannot store a change.
        FormatError: one of the files is damaged.
        SourceError: a file cannot be read or written.
    """
    require_choice("effort", effort, ("fast", "small"))
    require_choice("values", values, ("difference", "new"))
    require_choice("dialect", dialect, ("zt", *DIALECTS))
    require_choice("ids", ids, tuple(IDS))
    if dialect != "zt" and (effort, label) != ("fast", None):
        raise ArgumentValueError(
            f"effort and label are options of dialect='zt', not of {dialect!r}"
        )
    keep, workers = keeps(_listed(include), _listed(exclude)), thread_count(threads)
    with State.of(base) as before, State.of(new) as after:
        compare = functools.partial(Comparison, before, after, ids, keep, threads)
        if dialect != "zt":
            target = Target(compare, path, version, values, checksum, durable, workers, progress)
            return DIALECTS[dialect].write(target)
        both = compare()
        encode = functools.partial(difference, effort=effort, values=values)
        options = {"checksum": checksum, "durable": durable, "threads": workers}
        with DeltaWriter(path, str(version or EMITTERS.latest), **options) as writer:
            for done, each in enumerate(in_order(encode, both.pairs(), workers), 1):
                writer.add(each)
                if progress is not None:
                    progress(done, len(both.names))
            states = both.base_id, both.result_id
            text = None if label is None else str(label)
            return writer.finish(states, both.elements, both.removed, both.attributes(), text)


def in_order(
    work: Callable[[_Item], _Result], pairs: Iterable[_Item], workers: int
) -> Iterator[_Result]:
    """Yield the results of work on threads in the order of the pairs; few are begun ahead."""
    if workers == 1:
        yield from map(work, pairs)
        return
    begun: collections.deque[Any] = collections.deque()
    with Pool(workers) as pool:
        try:
            for pair in pairs:
                begun.append(pool.submit(work, pair))
                if len(begun) > workers:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _listed(patterns: str | Iterable[str] | None) -> Iterable[str] | None:
    return [patterns] if isinstance(patterns, str) else patterns
