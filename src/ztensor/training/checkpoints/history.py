"""List the steps of a run, the newest and the best, and read their states back."""

from __future__ import annotations

import dataclasses
import logging
import operator
from typing import TYPE_CHECKING, Any

from ztensor import open as open_files
from ztensor.distributed.opened import root_of
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    ObjectNotFoundError,
    ZTensorError,
    counted,
    describe,
)
from ztensor.ext import Shown
from ztensor.training.checkpoints.listing import Listing
from ztensor.training.checkpoints.place import Entry, Prefix, StepPlace, file_name, judged
from ztensor.training.checkpoints.rules import Best, Mode, Rules, mode_of, ranked
from ztensor.training.checkpoints.step import (
    Checkpoint,
    is_damage,
    is_unreadable,
    step_data,
    why_not_a_step,
)
from ztensor.training.states import read_tree
from ztensor.training.tree.adapters import AS_SAVED
from ztensor.training.tree.fitting import fit
from ztensor.typing import Path, TorchDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_LOG = logging.getLogger("ztensor")


@dataclasses.dataclass(frozen=True)
class Restored(Shown):
    """A step that was read back.

    Attributes:
        step: its number.
        tree: the state.
        metrics: as they were saved.
        skipped: newer damaged steps with their errors, the newest first.
    """

    step: int
    tree: Any = dataclasses.field(repr=False)  # all of a model
    metrics: Mapping[str, float]
    skipped: tuple[tuple[int, ZTensorError], ...] = ()


class History:
    """The steps of a run; `ztensor.CheckpointManager` adds to them.

    Args:
        place: their folder or prefix.
        rules: the rules that keep steps, which also define the best.
    """

    def __init__(self, place: StepPlace, rules: Rules) -> None:
        self._place = place
        self._listing = Listing(place)
        self._rules = rules
        self._in_use = -1  # the step restored from, which no rule removes; -1 for none

    def _settle(self, *, wait: bool = True) -> None:
        """Wait for a step that is being saved, and raise its error."""

    # --- Listing ----------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """Return all steps by number; those that do not open have their `problem`.

        Only the ends of files are read; `verify` reads all bytes.

        Raises:
            SourceError: the folder cannot be listed, or a file cannot be read.
        """
        return self._listing.read(self._listing.entries())

    @property
    def name(self) -> str:
        """Return the folder, or the URL."""
        return self._place.name

    @property
    def is_remote(self) -> bool:
        """Return whether the steps are in a store."""
        return isinstance(self._place, Prefix)

    def newest(self, count: int = 20) -> tuple[int, list[Checkpoint]]:
        """Return the number of steps, and the newest `count` of them, the newest first.

        Args:
            count: number of steps to read.

        Raises:
            SourceError: as `checkpoints`.
        """
        entries = self._listing.entries()
        newest = entries[-count:] if count > 0 else []
        return len(entries), self._listing.read(reversed(newest))

    def steps(self) -> list[int]:
        """Return the steps that open, by number.

        Raises:
            SourceError: as `checkpoints`.
        """
        return [one.step for one in self.checkpoints() if one.problem is None]

    def latest(self) -> int | None:
        """Return the newest step that opens, or None.

        Raises:
            SourceError: as `checkpoints`.
        """
        while True:
            for entry in reversed(self._listing.entries()):
                one = self._listing.look(entry)
                if one is None:  # another manager removed it since, having saved a newer one
                    break
                if one.problem is None:
                    return one.step
            else:
                return None

    def best(self, metric: str | None = None, mode: Mode | None = None) -> int | None:
        """Return the step with the best metric; of two equal ones the later.

        Args:
            metric: name of the metric; by default the first of `keep_best`.
            mode: "min" or "max"; by default the mode in the rule for this metric.

        Returns:
            The step, or None if no step that opens has the metric as a number.

        Raises:
            ArgumentValueError: neither arguments nor rules name the metric and the mode.
            SourceError: as `checkpoints`.
        """
        rule = self._best_rule(metric)
        metric = metric if rule is None else rule.metric
        mode = mode_of(mode) if mode is not None else None if rule is None else rule.mode
        if metric is None or mode is None:
            raise ArgumentValueError(
                "no rule of keep_best names the metric and the mode; pass both",
                found=describe(metric, 60),
            )
        opens = (one for one in self.checkpoints() if one.problem is None)
        return next(iter(ranked(opens, metric, mode)), None)

    def _best_rule(self, metric: str | None) -> Best | None:
        rules = self._rules.best
        return next((rule for rule in rules if metric in (None, rule.metric)), None)

    def path(self, step: int) -> Path:
        """Return the path or URL of a step, whether it exists or not.

        Raises:
            SourceError: as `checkpoints`.
        """
        path: Path = self._place.path(self._name(step_number(step)))
        return path

    def _name(self, step: int) -> str:
        for entry in self._listing.entries():
            if entry.step == step:
                return entry.name
        return file_name(step)

    # --- Reading ----------------------------------------------------------------------------

    def restore(
        self,
        step: int | None = None,
        *,
        into: Any = None,
        only: str | Iterable[str] | None = None,
        types: Iterable[type] = (),
        device: TorchDevice | None = None,
        threads: int | None = None,
    ) -> Restored | None:
        """Read a step back: the newest that is intact in every byte.

        Values come as they were saved, tensors of torch in memory of their own, each checked
        against its digest. No rule of this manager removes the step.

        A distributed step is read whole, in this process. A step that
        `torch.distributed.checkpoint.save` wrote is nested as it was; a step of `jax.save_sharded`
        is a dict of leaves by name, or a tree like `into`, of which each process reads its shards,
        as `ztensor.jax.load_sharded` does; a step of `ztensor.distributed` is a dict of tensors and
        values by name. To read only the boxes that a process needs, use
        `ztensor.torch.StorageReader(manager.path(step))`.

        Args:
            step: the step, or None for the newest. A step that is damaged, or claims a newer
                version or an excessive length, is then skipped, logged and listed in `skipped`, and
                the step before it is read. An intact file that only has the name of a step is
                ignored and logged.
            into: as for `ztensor.load_tree`, like all that follow.
            only: patterns of keys joined by dots.
            types: classes of records.
            device: device for tensors of torch, as for `ztensor.torch.load_tree`.
            threads: number of threads that read or decompress.

        Returns:
            The step, or None if `step` is None and the run is new.

        Raises:
            ObjectNotFoundError: the step does not exist.
            FormatError: the step, or every step, is damaged; or no file is the step of its name,
                and one is another step.
            UnsupportedVersionError: no step is readable, and one needs a newer release.
            ArgumentValueError: the step has another tree than `into`.
            SourceError: the folder or a file cannot be read, which does not count as damage.
            ZTensorError: as `ztensor.load_tree` raises.
        """
        self._settle()
        how = {"only": only, "types": types, "placing": {"device": device}, "threads": threads}
        if step is not None:
            return self._restored(self._entry(step_number(step)), into, how)
        skipped: dict[int, ZTensorError] = {}
        others: dict[int, ZTensorError] = {}
        while True:
            for entry in reversed(self._listing.entries()):
                try:
                    restored = self._restored(entry, into, how)
                except FileNotFoundError:  # another manager removed it, having saved a newer one
                    break
                except ZTensorError as error:
                    if why_not_a_step(error) is not None:
                        others[entry.step] = error
                        continue
                    if not is_unreadable(error):
                        raise
                    self._skip(entry, error)
                    skipped[entry.step] = error
                else:
                    _pass_over(others.values())
                    older = (
                        (step, error) for step, error in skipped.items() if step > restored.step
                    )
                    return dataclasses.replace(restored, skipped=tuple(older))
            else:
                break
        if not skipped:
            _pass_over(others.values(), is_new=True)
            return None
        newest = skipped[max(skipped)]
        for step in sorted(skipped, reverse=True):
            if not is_damage(skipped[step]):
                raise skipped[step]
        raise FormatError(
            f"no step is intact; {counted(len(skipped), 'step')} tried, the newest: {newest}",
            reason=newest.reason,
            file=self._place.name,
        )

    def _skip(self, entry: Entry, error: ZTensorError) -> None:
        self._listing.note_damage(entry, error)
        place = describe(self._place.name, 200)
        _LOG.warning("%s: step %d cannot be read and is skipped: %s", place, entry.step, error)

    def _entry(self, step: int) -> Entry:
        for entry in self._listing.entries():
            if entry.step == step:
                return entry
        raise ObjectNotFoundError(f"step {step} does not exist", file=self._place.name)

    def _restored(self, entry: Entry, into: Any, how: dict[str, Any]) -> Restored:
        path = self._place.path(entry.file)
        with judged(self._place, entry), open_files(path) as reader:
            metrics, _ = step_data(reader, entry.step, is_divided=entry.is_divided)
            root = root_of(reader.objects.parts()[0])
            is_of_jax = root is not None and root.writer == "jax"
            if into is not None and how["only"] is None and is_of_jax:
                from ztensor.jax import load_sharded

                tree = load_sharded(path, into, verify=True, threads=how["threads"])
            else:
                tree = read_tree(reader, AS_SAVED, copy=True, **how)
                tree = tree if into is None else fit(into, tree)
        self._in_use = entry.step
        return Restored(entry.step, tree, metrics)

    def verify(self, step: int | None = None) -> list[Checkpoint]:
        """Read every byte of a step, or of all, and return them with their problems.

        Raises:
            ObjectNotFoundError: the step does not exist.
            SourceError: as `checkpoints`.
        """
        self._settle()
        entries = self._listing.entries() if step is None else [self._entry(step_number(step))]
        return self._listing.read(entries, whole=True)


def _pass_over(others: Iterable[ZTensorError], *, is_new: bool = False) -> None:
    """Log the files that have the name of a step but are not that step.

    Raises:
        FormatError: there is no step, but a file is another step: a run must not start over because
            its files were renamed.
    """
    for error in others:
        cause = why_not_a_step(error)
        if is_new and cause is not None and cause.is_another:
            raise error
        _LOG.warning("passed over: %s", error)


def step_number(given: Any) -> int:
    """Return the number of a step.

    Raises:
        ArgumentTypeError: it is not an integer.
        ArgumentValueError: it is negative, or has more digits than a name.
    """
    try:
        step = operator.index(given)
    except TypeError:
        step = None
    if step is None or isinstance(given, bool):
        raise ArgumentTypeError("the number of a step is an integer", found=describe(given, 40))
    if not 0 <= step < 10**18:
        raise ArgumentValueError(
            "the number of a step must be from 0 on, with at most 18 digits",
            found=describe(given, 40),
        )
    return step
