"""`apply`: the state after deltas, as a new file or in place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

from ztensor import open as open_reader
from ztensor.delta.applied import Applied
from ztensor.delta.chain import MOST_OPEN, Deltas, Found, opened, ordered
from ztensor.delta.changes import Change, Delta, bound
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.report import ApplyReport
from ztensor.delta.states import State, content_id
from ztensor.delta.targets import How, change, check_all, locked, write_folder, write_new
from ztensor.errors import ArgumentTypeError, ArgumentValueError, counted, describe
from ztensor.ext import FileObjects, path_text
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
    dry_run: bool = False,
) -> ApplyReport:
    """Write the state after deltas as a new file, or change the file of the base.

    At every moment the target has its old state or the new one. The result has the format and
    version of the base, and tensors that do not change are copied as they are stored. A base of a
    format that is only read, such as a distributed checkpoint, becomes a `.zt` or `.safetensors`
    file.

    Args:
        deltas: a delta, a folder of them, or several in any order.
        base: the state before: anything `ztensor.open` takes.
        output: the new file, which replaces an old one; a new folder if the base is a set of
            shards.
        in_place: True changes `base` itself, a `.zt` or `.safetensors` file.
        to: the state to stop at: its id, the first digits of it, or the label of a delta.
        verify: `"touched"`: each new tensor must be the one that the delta was made from, and other
            tensors are not looked at unless they are tied to a changed one; `"full"`: the base and
            the result as a whole, too; None compares nothing.
        if_applied: `"skip"` accepts a base that already has the result.
        durable: as in `ztensor.typing.SaveOptions`.
        threads: how many decode; None uses the cores, at most four.
        progress: called with the number of tensors written so far and of all of them; of formats
            other than .zt and .safetensors with bytes.
        dry_run: True checks everything and writes nothing.

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
    how = How(durable, threads, progress)
    with Found(deltas) as found, contextlib.ExitStack() as opened:
        lock: Any = None
        if output is None:
            path = path_text(base)
            with open_reader(path) as reader:
                kind = "a set of files" if reader.objects.is_set else reader.format
            if not dry_run:
                lock = opened.enter_context(contextlib.closing(locked(path, kind)))
        state = opened.enter_context(State(base))  # once it is locked
        if state.reader is None:
            raise ArgumentTypeError("apply needs a file; apply_to changes a mapping of tensors")
        objects: Any = state.reader.objects

        def write(applied: Applied) -> int:
            if not applied.deltas and (dry_run or output is None):
                return int(objects.nbytes)
            if dry_run:
                check_all(applied, threads)
                return 0
            if output is None:
                return change(applied, objects, lock, how)
            if isinstance(objects, FileObjects):
                return write_new(applied, objects, output, how)
            return write_folder(applied, output, how)

        chain = Chained(found.deltas, state, to, verify, threads)
        target = state.name if output is None else path_text(output)
        return chain.run(write, target, verify, if_applied)


class Chained:
    """Deltas in the order in which they are applied to a state, and the checks of both.

    Args:
        deltas: the deltas in any order.
        state: the state before.
        to: the state to stop at; None takes the end.
        verify: as for `apply`.
        threads: how many compute ids.
        only: as for `Applied`.

    Attributes:
        links: the deltas that are applied, in order.

    Raises:
        DeltaError: they are not one chain, or do not fit the state.
    """

    def __init__(
        self,
        deltas: Sequence[Delta],
        state: State,
        to: str | None,
        verify: str | None,
        threads: int | None,
        only: Collection[str] | None = None,
    ) -> None:
        self._deltas, self._state, self._to = deltas, state, to
        self._verify, self._threads, self._only = verify, threads, only
        ids = next((each.ids for each in deltas if each.ids is not None), None)
        self.links: list[Delta] = []
        if not deltas:
            return
        try:
            links = ordered(deltas, None, to)
            if len(links) > 2 * MOST_OPEN and ids is not None:  # perhaps the base has most of them
                links = ordered(deltas, self._content_id(ids), to)
        except DeltaError:  # perhaps several starts: the base says which
            left = {each.base for each in deltas if each.base != each.result}
            if ids is None or (to is None and len({each.result for each in deltas} - left) != 1):
                raise
            links = ordered(deltas, self._content_id(ids), to)
        self.links = bound(opened(links), state)

    def run(
        self, write: Callable[[Applied], int], target: str, verified: str | None, if_applied: str
    ) -> ApplyReport:
        """Write the state after the deltas, and return the report.

        Deltas before the state of the base are left out.

        Args:
            write: writes the state, compares each new tensor, and returns the bytes.
            target: what is written.
            verified: the `verify` of the call.
            if_applied: "error", or "skip": if the base has the result, it is written.

        Raises:
            DeltaError: the deltas do not fit the base.
        """
        try:
            applied, nbytes = self._written(write)
        except DeltaError as error:
            if error.reason is not DeltaReason.APPLIED or if_applied == "error":
                raise
            applied = Applied(self._state, ())
            nbytes = write(applied)
        first = self.links[0].base if self.links else None
        last = self.links[-1].result if self.links else None
        names = tuple(each.name for each in self.links)
        count = len(applied.tensors) + len(applied.removed)
        return ApplyReport(target, first, last, names, count, nbytes, verified)

    def _written(self, write: Callable[[Applied], int]) -> tuple[Applied, int]:
        """Return the state after the deltas, and the result of `write` with it."""
        applied = None
        if not self._deltas:
            raise _applied_before("there is no delta to apply")
        try:
            compares = self._verify is not None
            applied = Applied(self._state, self.links, compares=compares, only=self._only)
            self._check_base(applied)
            return applied, write(applied)
        except DeltaError as error:
            reason = self._explained(error, applied)
            links = self._behind_base(reason)
            if links is None:
                raise reason from None
            self.links = links
        return self._written(write)

    def _behind_base(self, reason: DeltaError) -> list[Delta] | None:
        """Return the deltas behind the state of the base; None if that is no state of the chain."""
        ids = self.links[0].ids
        if ids is None and reason.reason is DeltaReason.RESULT:  # versions with checksums
            counts = range(len(self.links) - 1, 0, -1)
            done = (count for count in counts if self._is_applied(self.links[:count]))
            return next((self.links[count:] for count in done), None)
        if reason.reason is not DeltaReason.BASE or ids is None or len(self._deltas) < 2:
            return None
        try:
            links = ordered(self._deltas, self._content_id(ids), self._to)
        except DeltaError:
            return None
        return None if links in ([], self.links) else opened(links)

    def _unties(self, applied: Applied) -> bool:
        """Return whether a tensor of a file stays as it is, although a tied one changes."""
        if self._state.reader is None:  # `apply_to` refuses it
            return False
        touched = {*applied.tensors, *applied.removed} & {*self._state}
        changed = {place for name in touched for place in self._state.places(name)}
        left = (name for name in self._state if name not in touched)
        return bool(changed) and any(changed & self._state.places(name) for name in left)

    def _content_id(self, ids: str) -> str:
        return content_id(self._state.ids(ids, threads=self._threads), ids)

    def _check_base(self, applied: Applied) -> None:
        """Compare the tensors of the base that no new tensor depends on; of "full" all."""
        if self._verify is None or not self.links:
            return
        whole = [name for name, tensor in applied.tensors.items() if tensor.is_whole]
        self._require_old(applied, [*whole, *applied.removed])
        ids, last = self.links[0].ids, self.links[-1]
        if ids is None or not (self._verify == "full" or self._unties(applied)):
            return
        found = self._content_id(ids)
        base = self.links[0].base
        if found != base:
            self._require_old(applied, applied.first)
            message = "a tensor that the delta does not change is another one than in its base"
            details = {"file": self._state.name, "expected": base, "found": found}
            raise DeltaError(message, reason=DeltaReason.BASE, **details)
        after = content_id(applied.ids(ids, threads=self._threads), ids)
        if last.ids == ids and after != last.result:
            message = "the tensors of the delta do not lead to its result"
            details = {"file": last.name, "expected": last.result, "found": after}
            raise DeltaError(message, reason=DeltaReason.RESULT, **details)

    # --- Why deltas do not fit --------------------------------------------------------------------

    def _is_applied(self, deltas: Sequence[Delta]) -> bool:
        """Return whether the base already has the result of deltas, as far as they know it."""
        base, only = self._state, self._only
        final: dict[str, tuple[Change, str | None] | None] = {}
        for delta in deltas:
            final.update(dict.fromkeys(delta.removed))
            final.update({name: (change, delta.ids) for name, change in delta.items()})
        if only is not None:
            final = {name: last for name, last in final.items() if last and name in only}
        if any((last is None) is (name in base) for name, last in final.items()):
            return False
        for name, (after, ids) in ((name, last) for name, last in final.items() if last):
            is_known = after.checksum is not None or (after.new is not None and ids is not None)
            if not is_known or not after.is_result(base[name], ids):
                return False
        return bool(final)

    def _require_old(self, applied: Applied, names: Iterable[str]) -> None:
        """Require that tensors of the base are those that the deltas start from.

        Raises:
            DeltaError: one differs.
        """
        ids, first = self.links[0].ids, applied.first
        wanted = [name for name in names if name in first]
        if ids is None or not wanted:
            return
        found = self._state.ids(ids, wanted, self._threads)
        differing = [name for name in wanted if found[name] != first[name]]
        if differing:
            name, count = differing[0], counted(len(differing), "tensor")
            shown = ", ".join(map(describe, differing[:5])) + (", ..." * (len(differing) > 5))
            message = f"{count} of the base differ from those that the delta starts from: {shown}"
            where = {"file": self._state.name, "object_name": name}
            where |= {"expected": first[name].hex(), "found": found[name].hex()}
            error = DeltaError(message, reason=DeltaReason.BASE, **where)
            error.hint = f"the delta starts from the state {self.links[0].base}"
            raise error

    def _explained(self, error: DeltaError, applied: Applied | None) -> DeltaError:
        """Return the error that says why: wrong base, applied before, or damaged.

        Args:
            error: the first difference.
            applied: the state after; None if the deltas did not get so far.
        """
        if error.reason is DeltaReason.APPLIED:
            return error
        if self._is_applied(self.links):
            message = "the base already has the result of the delta"
            return _applied_before(message, file=self._state.name, found=self.links[-1].result)
        if applied is not None and error.reason in (DeltaReason.RESULT, DeltaReason.MALFORMED):
            try:
                self._require_old(applied, applied.first)
            except DeltaError as wrong:
                return wrong
        return error


def _applied_before(message: str, **details: Any) -> DeltaError:
    """Return the error for a base on which nothing is left to do."""
    error = DeltaError(message, reason=DeltaReason.APPLIED, **details)
    error.hint = "if_applied='skip' (`--skip-applied`) accepts that"
    return error
