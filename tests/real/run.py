"""Read real files of many programs, and hold every value to the format's own library.

    python tests/real/run.py                what `make suite SUITE=real-files` runs
    python tests/real/run.py --write-docs   writes docs/project/real-files.md, too
    python tests/real/run.py --only onnx    some packages
    python tests/real/run.py --pin          pins the present files

The files are in packages of the registry that pip asks; `packages.toml` names them, `files.json`
pins each. Every file is read, compared with the values of its own library, converted to a `.zt`
file and back, compared again and verified. Everything that only the library finds must be in the
loss report of the file. The status is 1 if any check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real.archives import (
    ArchiveError,
    Pins,
    fetched,
    files,
    packages,
    read_pins,
    sha256,
    write_pins,
)
from tests.real.checking import Row, check
from tests.real.page import INTRODUCTION, PAGE, tables

ROOT = Path(__file__).resolve().parents[2]
LEAST = 150  # files that are read


def main() -> int:
    """Run all, and return the status."""
    options = _options()
    pins = Pins({}, []) if options.pin else read_pins()
    chosen = [p for p in packages() if not options.only or options.only in p.name]
    rows: list[Row] = []
    archives: dict[str, Path] = {}
    for package in chosen:
        path = fetched(package, options.cache, pins.archives.get(package.name))
        archives[package.name] = path
        if options.pin:
            pins.archives[package.name] = sha256(path)
    with tempfile.TemporaryDirectory() as folder:
        for path, entry in files(chosen, archives, pins, Path(folder), pinning=options.pin):
            row = check(path, entry["package"], entry["member"])
            if not options.pin and row.reason != entry.get("reason", ""):
                row.faults.append(f"refused for {row.reason!r}: {row.message}")
            entry["format"] = row.format
            if row.reason:
                entry["reason"] = row.reason
            rows.append(row)
            path.unlink()
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{len(rows)} files, {entry['member'][-60:]:60}")
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 90 + "\r")
    faults = [f"{row.package}: {row.member}: {fault}" for row in rows for fault in row.faults]
    results = tables(rows, {p.name: p for p in chosen}, archives)
    sys.stdout.write(results)
    if options.pin:
        write_pins(pins)
    if options.write_docs:
        (ROOT / PAGE).write_text(INTRODUCTION + results, "utf-8")
    read = sum(not row.reason and not row.faults for row in rows)
    if not options.only and read < LEAST:
        faults.append(f"{read} files are read; {LEAST} are wanted")
    sys.stdout.write("".join(f"! {fault}\n" for fault in faults))
    sys.stdout.write(f"\n{read} files are read; {len(faults)} faults\n")
    return 1 if faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--cache", type=Path, default=ROOT / ".venv" / "real-files")
    parser.add_argument("--only", default="", help="packages with this in their name")
    parser.add_argument("--pin", action="store_true", help="pin the present files")
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE}")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        status = main()
    except ArchiveError as error:
        sys.exit(f"! {error}")
    sys.exit(status)
