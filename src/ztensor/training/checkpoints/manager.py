"""`CheckpointManager`: saves the steps of a run, keeps those its rules say, and finds the last."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

from ztensor import open as open_files
from ztensor.distributed.root import STEP
from ztensor.edit import set_attributes
from ztensor.errors import (
    ArgumentValueError,
    ClosedError,
    FormatError,
    SourceNotFoundError,
    UsageError,
    describe,
)
from ztensor.ext import EMITTERS, Shown
from ztensor.options import WriteOptions, require_options
from ztensor.training.checkpoints.background import BackgroundSave
from ztensor.training.checkpoints.hints import Hinted
from ztensor.training.checkpoints.history import History, step_number
from ztensor.training.checkpoints.interrupting import Interruption
from ztensor.training.checkpoints.place import file_name, place_of
from ztensor.training.checkpoints.rules import Mode, positive, rules_of
from ztensor.training.checkpoints.staging import Staging
from ztensor.training.checkpoints.step import (
    attributes_of,
    metrics_of,
    name_of,
    step_data,
    why_not_a_step,
)
from ztensor.training.states import save_encoded, save_encoded_divided
from ztensor.training.tree.encode import Encoded, encode
from ztensor.typing import Durable, Path, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack


class CheckpointManager(Shown, Hinted, History):
    """Saves the steps of a training run in a folder, removes old ones, and resumes from the last.

    A step is one file, `step-00000100.zt`, that `ztensor.load_tree` reads, too. It appears
    atomically, and is on disk before any older step is removed. There is no other file: the folder
    is its own index. A distributed checkpoint (see `ztensor.distributed`) in a folder
    `step-00000100` is a step, too: `save_divided` writes one.

    No clock is read, and several managers may use one folder at the same time.

    Args:
        where: a folder, made when the first step is saved; or a URL of a store, `s3://bucket/run`.
        keep: number of newest steps to keep, or None for all.
        keep_best: also keeps the best steps by a metric, such as `("loss", 2, "min")`; or a list of
            such rules.
        keep_every: also keeps steps that are multiples of this.
        every: `save` and `should_save` accept only multiples of this; None accepts all steps.
        background: True copies the state and writes it in a thread: it may be changed as soon as
            `save` returns. A second save waits for the first.
        durable: True flushes each step to disk before an old one is removed; False does not, and a
            power cut may then cost the newest step.
        increments: True makes a step a folder, and writes only tensors that changed since the step
            before; the files of unchanged tensors are hard-linked. It saves space and time if much
            stays the same, such as frozen weights under an adapter; an optimizer changes every
            number that it trains. Damage to a shared file affects all steps that share it.
        overwrite_newer: True removes steps newer than the one that was saved, left by a run that
            was resumed from an older step. False refuses to save then.
        on_signal: a signal, such as `"SIGTERM"`, after which the next step is saved whatever its
            number is, and `interrupted` is true.
        compression: as for `ztensor.save_tree`.
        storage: see `ztensor.typing.OpenOptions`.
        options: see `ztensor.typing.WriteOptions`.

    Raises:
        ArgumentTypeError: an argument has a wrong type.
        ArgumentValueError: a count is not positive, the signal is unknown, or `increments` is given
            with a `checksum`, a `version` or another of `WriteOptions`.
        UsageError: `on_signal` is given outside of the main thread.
    """

    def __init__(
        self,
        where: Path,
        *,
        keep: int | None = 3,
        keep_best: tuple[str, int, Mode] | Iterable[tuple[str, int, Mode]] | None = None,
        keep_every: int | None = None,
        every: int | None = None,
        background: bool = True,
        durable: Durable = True,
        increments: bool = False,
        overwrite_newer: bool = False,
        on_signal: str | None = None,
        compression: bool | int | str = False,
        storage: Storage | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        require_options("CheckpointManager", options, WriteOptions)
        super().__init__(place_of(where, storage), rules_of(keep, keep_best, keep_every))
        self._every = None if every is None else positive(every, "every")
        self._background = background
        self._overwrite_newer = overwrite_newer
        self._options: dict[str, Any] = {
            "durable": durable,
            "compression": compression,
            **options,
        }
        defaults = ("checksum", True), ("version", EMITTERS.latest)
        own = {name: value for name, value in options.items() if (name, value) not in defaults}
        if increments and own:
            raise ArgumentValueError(
                "increments have digests and a version of their own",
                expected="the default checksum and version",
                found=describe(own, 60),
            )
        self._increments = increments
        self._staging = Staging()
        self._saving: BackgroundSave | None = None
        self._process = os.getpid()
        self._is_closed = False
        self._last: int | None = None  # last step saved by this manager
        self._signal = None if on_signal is None else Interruption(on_signal)

    # --- Saving -----------------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Return whether `save` would save a step: a multiple of `every`, or after a signal."""
        step = step_number(step)
        return self.interrupted or self._every is None or step % self._every == 0

    @property
    def interrupted(self) -> bool:
        """Return whether the signal came: save, and leave the loop."""
        return self._signal is not None and self._signal.came

    def save(
        self,
        step: int,
        tree: object,
        metrics: Mapping[str, SupportsFloat] | None = None,
        *,
        force: bool = False,
    ) -> bool:
        """Save a step, unless `every` excludes it; then remove steps that no rule keeps.

        In the background this returns after one copy of the state. After a signal it returns when
        the step is on disk.

        Args:
            step: its number; an existing step is replaced.
            tree: the state; see `ztensor.save_tree`.
            metrics: names to numbers, by which `keep_best` and `best` judge.
            force: True saves whatever `every` says.

        Returns:
            Whether it was, or will be, saved.

        Raises:
            NotRepresentableError: a value cannot be kept; the message has its place.
            UsageError: there is a newer step, of a run that went further than this one; or the name
                of the step is a link, or has a file that is not that step.
            SourceError: the step could not be written, or an old one not removed; of a save in the
                background this is raised by the next call of the manager, once.
            ClosedError: the manager was closed.
        """
        step = step_number(step)
        attributes = self._attributes_of(step, metrics, force=force)
        if attributes is None:
            return False
        encoded = encode(tree)
        encoded = self._staging.copied(encoded) if self._background else encoded
        commit = functools.partial(self._commit, step, encoded, attributes)
        self._end_save(step, commit)
        return True

    def save_divided(
        self,
        step: int,
        write: Callable[[Path, Mapping[str, object]], object],
        metrics: Mapping[str, SupportsFloat] | None = None,
        *,
        process: int = 0,
        force: bool = False,
    ) -> bool:
        """Save a step that several processes write, unless `every` excludes it; all call this.

            def write(folder, values):
                dcp.save(state, storage_writer=StorageWriter(folder, values=values))

            manager.save_divided(step, write, process=torch.distributed.get_rank())

        `write` runs at once. When the root is in place, process 0 removes steps that no rule keeps.

        Args:
            step: its number; an existing step is replaced.
            write: called with the existing folder, or the URL, and with values for the root that
                make it this step. `ztensor.torch.StorageWriter`, `ztensor.jax.save_sharded` and
                `ztensor.distributed.commit` take both. It returns when the root is in place, or the
                save in the background that `save_sharded` returned.
            metrics: as for `save`; the process that writes the root stores its own.
            process: the number of this process.
            force: True ignores `every`.

        Returns:
            Whether it was, or will be, saved.

        Raises:
            UsageError: there is a newer step, from a run that went further; or this step exists as
                a file; or `write` left no root.
            SourceError: an old step could not be removed.
            ClosedError: the manager was closed.
            Exception: the error of `write`. Older steps are untouched.
        """
        step = step_number(step)
        attributes = self._attributes_of(step, metrics, force=force)
        if attributes is None:
            return False
        self._require_no_file(step)
        durable = process == 0 and self._options["durable"] is True
        if process == 0:
            self._place.prepare(durable=durable)
        with contextlib.ExitStack() as stack:
            path: Any = stack.enter_context(self._place.writing(name_of(step), durable=durable))
            written = write(path, attributes)
            writing = stack.pop_all()

        def end() -> None:
            with writing:
                if isinstance(written, BackgroundSave):
                    written.wait()
            self._listing.forget_damage(step)
            self._last = step
            if process == 0:
                if not any(one.step == step for one in self._listing.entries()):
                    raise UsageError("no root was written, so it is not a step", file=str(path))
                self._retain(step)

        self._end_save(step, end, is_begun=isinstance(written, BackgroundSave))
        return True

    def _end_save(self, step: int, work: Callable[[], None], *, is_begun: bool = True) -> None:
        if not (self._background and is_begun):
            work()
            return
        self._saving = BackgroundSave(work, f"{describe(self._place.name)}: step {step}")
        self._saving.start()
        if self.interrupted:
            self._settle()

    def _attributes_of(
        self, step: int, metrics: Mapping[str, SupportsFloat] | None, *, force: bool
    ) -> dict[str, object] | None:
        """Return the attributes of a step that may be saved now, None if `every` excludes it."""
        self._require_open()
        attributes = attributes_of(step, metrics_of(metrics))
        if not (force or self.should_save(step)):
            self._settle(wait=False)
            return None
        self._settle()
        self._require_newest(step)
        self._require_own_name(step)
        return attributes

    def wait(self) -> None:
        """Wait for a save in the background.

        Raises:
            SourceError: it failed; this is raised once.
        """
        self._settle()

    def close(self) -> None:
        """Wait for a save in the background, and restore the signal handler. May be called again.

        Raises:
            SourceError: the save failed; this is raised once.
        """
        if self._process != os.getpid():
            return
        self._is_closed = True
        if self._signal is not None:
            self._signal.give_up()
        try:
            self._settle()
        finally:
            self._staging.clear()

    def __enter__(self) -> Self:
        """Return the manager itself."""
        self._require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it; if an exception is being raised, a failed save is noted on it."""
        raised = sys.exception()
        try:
            self.close()
        except Exception as error:
            if raised is None:
                raise
            raised.add_note(f"and the last save failed: {error}")

    def _settle(self, *, wait: bool = True) -> None:
        """Wait for the thread, and raise its error."""
        saving = self._saving
        if saving is None or self._process != os.getpid():
            return
        if wait or not saving.is_running:
            saving.wait()
            self._saving = None

    def _commit(self, step: int, encoded: Encoded, attributes: dict[str, object]) -> None:
        self._place.prepare(durable=self._options["durable"] is True)
        if self._increments:
            self._save_increment(step, encoded, attributes)
        else:
            save_encoded(encoded, self._place.path(file_name(step)), attributes, **self._options)
        # The step exists from here on, even if older ones cannot be removed.
        self._listing.forget_damage(step)
        self._last = step
        self._retain(step)

    def _save_increment(self, step: int, encoded: Encoded, attributes: dict[str, object]) -> None:
        self._require_no_file(step)
        older = [one for one in self._listing.entries() if one.is_divided and one.step != step]
        opens = (one for one in reversed(older) if self._listing.opens(one))
        since = next((self._place.path(one.name) for one in opens), None)
        durable = self._options["durable"]
        save = functools.partial(
            save_encoded_divided, durable=durable, compression=self._options["compression"]
        )
        with self._place.writing(name_of(step), durable=durable is True) as path:
            try:
                save(encoded, path, attributes, since=since)
            except (SourceNotFoundError, FormatError):
                if since is None:
                    raise
                # The older step lacks a file, or another manager removed it: write in full.
                save(encoded, path, attributes, since=None)

    def _require_no_file(self, step: int) -> None:
        """Refuse to save a step as a folder if it exists as a file, which readers would prefer."""
        for entry in self._listing.entries():
            if entry.step == step and not entry.is_divided:
                raise UsageError(
                    f"step {step} exists as a file: delete it first",
                    file=str(self._place.path(entry.name)),
                )

    def _retain(self, newest: int) -> None:
        """Remove the steps that no rule keeps, the oldest first."""
        entries = self._listing.entries()
        newer = [entry for entry in entries if entry.step > newest]
        steps = self._listing.read(entry for entry in entries if entry.step <= newest)
        own = next((one for one in steps if one.step == newest), None)
        if own is not None and own.problem is not None:
            raise own.problem  # the older steps are all that is left
        kept = self._rules.kept([one for one in steps if one.problem is None])
        kept |= {newest, self._in_use, *(one.step for one in steps if one.problem is not None)}
        gone = [entry for entry in entries if entry.step < newest and entry.step not in kept]
        if self._overwrite_newer:
            gone += [entry for entry in newer if self._listing.opens(entry)]
        for entry in gone:
            self._place.remove(entry)
        self._place.clear(newest)

    def _require_newest(self, step: int) -> None:
        """Refuse to save if a newer step opens: the rules would keep that one instead."""
        if self._last is not None and step > self._last:
            return  # checked before; newer steps are from another run since then
        newer = [entry for entry in self._listing.entries() if entry.step > step]
        opens = [one for one in self._listing.read(newer) if one.problem is None]
        if not opens:
            return
        if not self._overwrite_newer:
            error = UsageError(
                f"step {step} is older than step {opens[-1].step}, which exists: another run "
                "went further; save in another folder, or remove its steps",
                file=self._place.name,
            )
            error.in_python = "overwrite_newer=True removes newer steps once this one is saved"
            raise error
        for one in opens:
            if one.is_pinned:
                raise UsageError(
                    f"step {one.step} is newer than step {step}, and is pinned",
                    file=self._place.name,
                )

    def _require_own_name(self, step: int) -> None:
        """Refuse to save a step through a link, or over a file that is not that step."""
        self._place.require_no_link(step)
        entries = [entry for entry in self._listing.entries() if entry.step == step]
        for one in self._listing.read(entries):
            if one.problem is not None and why_not_a_step(one.problem) is not None:
                raise UsageError(
                    f"the name of step {step} has a file that is not that step: move it away",
                    file=one.path,
                )

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the manager was closed", file=self._place.name)
        if self._process != os.getpid():
            raise UsageError(
                "the manager was made in another process; make one in this", file=self._place.name
            )

    # --- Removing ---------------------------------------------------------------------------

    def pin(self, step: int, *, pinned: bool = True) -> None:
        """Keep a step regardless of the rules, or end that.

        The file is replaced by a copy with the attribute `pinned`.

        Raises:
            ObjectNotFoundError: the step does not exist.
            UsageError: the step is in a store, where files are not edited; or is distributed.
            ZTensorError: as `ztensor.edit.set_attributes` raises.
        """
        self._settle()
        entry = self._entry(step_number(step))
        path = self._place.path(entry.name)
        if entry.is_divided:
            raise UsageError("a distributed (divided) step cannot be pinned", file=str(path))
        with open_files(path) as reader:
            step_data(reader, entry.step)
            attribute = dict(reader.attributes[STEP])
        attribute.pop("pinned", None)
        if pinned:
            attribute["pinned"] = True
        set_attributes(path, {STEP: attribute}, atomic=True)

    def delete(self, step: int) -> None:
        """Remove a step regardless of the rules.

        Other files in its folder stay.

        Raises:
            ObjectNotFoundError: the step does not exist.
            UsageError: the name of the step is a link, or has a file that is not that step; or
                another manager is saving it.
            SourceError: it could not be removed.
        """
        self._settle()
        entry = self._entry(step_number(step))
        if not self._place.remove(entry):
            raise UsageError(
                f"step {step} is not removed: its name is a link, its file is not that step, or "
                "another manager is saving it",
                file=str(self._place.path(entry.name)),
            )

    def prune(self, *, damaged: bool = False, dry_run: bool = False) -> list[int]:
        """Remove steps that no rule keeps, as each save does, and files that killed saves left.

        The newest steps are read first, until one is intact: it stays in any case. Rules do not
        count damaged steps.

        Args:
            damaged: True also removes damaged steps, if another step is intact. Intact files that
                only have the name of a step stay.
            dry_run: True removes nothing.

        Returns:
            The steps that were removed, or would be, by number.

        Raises:
            SourceError: a step cannot be read or removed.
        """
        self._settle()
        entries = self._listing.entries()
        newest: int | None = None
        for entry in reversed(entries):
            if any(one.problem is None for one in self._listing.read([entry], whole=True)):
                newest = entry.step
                break
        if newest is None:
            return []
        steps = self._listing.read(entries)
        kept = self._rules.kept([one for one in steps if one.problem is None])
        kept |= {newest, self._in_use}
        kept |= {one.step for one in steps if one.problem and not (damaged and one.is_damaged)}
        gone = [entry for entry in entries if entry.step not in kept and not entry.is_link]
        if not dry_run:
            self._place.prepare(durable=False)
            for entry in gone:
                self._place.remove(entry)
            self._place.clear(newest)
        return [entry.step for entry in gone]

    def __repr__(self) -> str:
        """Return the place of the run."""
        return f"<ztensor.CheckpointManager {describe(self._place.name)}>"
