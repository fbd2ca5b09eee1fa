"""`apply`: the state after deltas, as a new file or in place."""

from __future__ import annotations

from typing import Literal

from ztensor.delta.applied import Applied, explained, require_old
from ztensor.delta.chain import Deltas, Found, ordered
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.report import ApplyReport
from ztensor.delta.states import State, content_id
from ztensor.delta.targets import write_new
from ztensor.errors import ArgumentValueError
from ztensor.ext import path_text
from ztensor.options import require_choice
from ztensor.typing import Durable, Path, Progress, Readable

Verify = Literal["touched", "full"]


def apply(
    deltas: Deltas,
    base: Readable,
    output: Path | None = None,
    *,
    in_place: bool = False,
    to: str | None = None,
    verify: Verify | None = "touched",
    if_applied: Literal["error", "skip"] = "error",
    durable: Durable = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> ApplyReport:
    """Write the state after deltas as a new file, or change the file of the base.

    At every moment the target has its old state or the new one. The result has the format and
    version of the base; tensors that do not change are copied as they are stored.

    Args:
        deltas: a delta, a folder of them, or several in any order.
        base: the state before: anything `ztensor.open` takes that is one file.
        output: the new file; it replaces an old one.
        in_place: True changes `base` itself.
        to: the state to stop at: its id, the first digits of it, or the label of a delta.
        verify: `"touched"`: each new tensor must be the one that the delta was made from;
            `"full"`: all tensors of the base, too; None compares nothing.
        if_applied: `"skip"` accepts a base that already has the result.
        durable: as in `ztensor.typing.SaveOptions`.
        threads: how many decode; None uses the cores, at most four.
        progress: called with the number of tensors written so far and of all of them.

    Raises:
        DeltaError: the deltas do not fit the base, or are malformed; the target is unchanged.
        NotRepresentableError: the format of the base cannot hold the new state.
        FormatError: a file is damaged.
        SourceError: a file cannot be read or written, or another process is writing the target.
    """
    require_choice("verify", verify, ("touched", "full", None))
    require_choice("if_applied", if_applied, ("error", "skip"))
    if (output is None) is not in_place:
        raise ArgumentValueError("apply needs an output, or in_place=True, and not both")
    if output is None:
        raise NotImplementedError
    with Found(deltas) as found, State(base) as state:
        links = ordered(found.deltas, None, to)
        applied: Applied | None = None
        try:
            applied = Applied(state, links, compares=verify is not None)
            checked(applied, verify, threads)
            nbytes = write_new(applied, output, durable=durable, threads=threads, progress=progress)
        except DeltaError as error:
            reason = explained(applied, state, links, error)
            if reason.reason is not DeltaReason.APPLIED or if_applied == "error":
                raise reason from None
            applied = Applied(state, ())
            nbytes = write_new(applied, output, durable=durable, threads=threads, progress=progress)
        return ApplyReport(
            path_text(output),
            links[0].base if links else None,
            links[-1].result if links else None,
            tuple(each.name for each in links),
            len(applied.tensors) + len(applied.removed),
            nbytes,
            verify,
        )


def checked(applied: Applied, verify: Verify | None, threads: int | None) -> None:
    """Compare the tensors of the base that no new tensor depends on; with `"full"` all of them.

    Raises:
        DeltaError: the base is not the one that the deltas start from.
    """
    if verify is None or not applied.deltas:
        return
    whole = [n for n, tensor in applied.tensors.items() if tensor.changes[0].kind != "changed"]
    require_old(applied, [*whole, *applied.removed], threads)
    first = applied.deltas[0]
    if verify == "full" and first.ids is not None:
        before = applied.base.ids(first.ids, threads=threads)
        if content_id(before, first.ids) != first.base:
            require_old(applied, applied.first, threads)
            raise DeltaError(
                "a tensor that the delta does not change is another one than in its base",
                reason=DeltaReason.BASE,
                file=applied.base.name,
                expected=first.base,
                found=content_id(before, first.ids),
            )
