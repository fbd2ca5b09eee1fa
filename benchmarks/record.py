"""All that one run found, and its form as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from benchmarks.ratios import Sample, Samples

FORMAT = 1
_COLUMNS = ("workload", "operation", "peer", "round", "wall", "cpu", "peak")


@dataclasses.dataclass(slots=True)
class Run:
    """One run.

    Attributes:
        mode: `quick` or `full`.
        date: when.
        seed: of data and order.
        machine: what `machine.describe` says.
        titles: peer to how it is shown, in the order of the table.
        versions: peer to what is installed in its environment.
        absent: peer to why it could not be measured at all.
        workloads: name to title, bytes and count of tensors.
        skipped: workload to why it was left out.
        notes: why a peer has no figure: workload, operation (empty for all), peer, reason, and
            whether that was a failure rather than a missing function.
        files: workload to peer to bytes of its file.
        warnings: what makes the figures less than they could be.
        samples: the measurements.
        is_foreign: whether files of other libraries were read.
    """

    mode: str
    date: str
    seed: int
    machine: dict[str, Any]
    titles: dict[str, str] = dataclasses.field(default_factory=dict)
    versions: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    absent: dict[str, str] = dataclasses.field(default_factory=dict)
    workloads: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[tuple[str, str, str, str, bool]] = dataclasses.field(default_factory=list)
    files: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    warnings: list[str] = dataclasses.field(default_factory=list)
    samples: Samples = dataclasses.field(default_factory=Samples)
    is_foreign: bool = False

    def note(
        self, workload: str, operation: str, peer: str, reason: str, *, is_error: bool
    ) -> None:
        """Remember why a peer has no figure."""
        self.notes.append((workload, operation, peer, reason, is_error))

    def nbytes(self) -> dict[str, int]:
        """Return the bytes of each workload's tensors."""
        return {name: facts["nbytes"] for name, facts in self.workloads.items()}

    def to_json(self) -> str:
        """Return the run as JSON, a sample per line."""
        facts = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "samples"
        }
        head = json.dumps({"format": FORMAT, **facts, "columns": _COLUMNS}, indent=1)
        rows = ",\n  ".join(json.dumps(_row(sample)) for sample in self.samples)
        return f'{head[:-2]},\n "samples": [\n  {rows}\n ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Run:
        """Return the run that `to_json` wrote.

        Raises:
            ValueError: it is of another format.
        """
        facts = json.loads(text)
        if facts.pop("format", None) != FORMAT:
            raise ValueError("not the result of a run, or of another release of the harness")
        columns = facts.pop("columns")
        rows = facts.pop("samples")
        samples = Samples(Sample(**dict(zip(columns, row, strict=True))) for row in rows)
        notes = [tuple(note) for note in facts.pop("notes")]
        return cls(**facts, notes=notes, samples=samples)


def _row(sample: Sample) -> list[Any]:
    row = dataclasses.asdict(sample)
    row |= {"wall": round(sample.wall, 7), "cpu": round(sample.cpu, 7)}
    return [row[column] for column in _COLUMNS]
