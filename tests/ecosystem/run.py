"""Run the tests of each library of `environments.toml` in an environment of its own.

    python -m tests.ecosystem.run                    all of them: `make suite SUITE=ecosystem`
    python -m tests.ecosystem.run peft timm-newest   some of them
    python -m tests.ecosystem.run --list             what there is, and what each installs

An environment is `.venvs/ecosystem-<name>-<oldest|newest>` and has a library with its dependencies.
Other packages are found in the current environment: ten copies of torch would take ten gigabytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venvs"
TABLE = HERE / "environments.toml"
AGES = ("oldest", "newest")


class Environment(NamedTuple):
    """One line of the table: a library at one age.

    Attributes:
        name: as `transformers-newest`.
        requirements: what pip installs.
        tests: files of this folder.
    """

    name: str
    requirements: list[str]
    tests: list[str]

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / f"ecosystem-{self.name}"


def table() -> dict[str, dict[str, Any]]:
    """Return the libraries: names to requirements, imports and tests."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def environments(wanted: list[str]) -> list[Environment]:
    """Return the environments of these names or libraries; all environments for an empty list."""
    every = [
        Environment(f"{name}-{age}", entry[age], entry["tests"])
        for name, entry in table().items()
        for age in AGES
        if age in entry
    ]
    known = {one.name for one in every} | set(table())
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [
        one
        for one in every
        if not wanted or one.name in wanted or one.name.rpartition("-")[0] in wanted
    ]


def make(environment: Environment) -> Path:
    """Return the Python of an environment; makes it where it is missing or outdated.

    Raises:
        subprocess.CalledProcessError: it cannot be made, or pip failed.
    """
    folder = environment.folder
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    torch = f"torch=={version('torch')}"
    wanted = "\n".join([sys.version, torch, *environment.requirements])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    own = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    below = sysconfig.get_path("purelib")
    Path(own, "ecosystem.pth").write_text(below + "\n", encoding="utf-8")
    # The one torch that is there is the one a library has to take.
    (folder / "constraints.txt").write_text(torch + "\n", encoding="utf-8")
    command = [str(python), "-m", "pip", "install", "--quiet", "--retries", "5"]
    command += ["--constraint", str(folder / "constraints.txt"), *environment.requirements]
    subprocess.run(command, env=clean(), check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def clean() -> dict[str, str]:
    """Return the environment variables for another Python: nothing leads it to other packages."""
    removed = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    variables = {key: value for key, value in os.environ.items() if key not in removed}
    return variables | {
        "PYTHONPATH": str(ROOT / "src"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "HF_HUB_OFFLINE": "1",  # nothing is fetched
    }


def outcome(environment: Environment, arguments: list[str]) -> str:
    """Run the tests of an environment; return a row for the printed table."""
    files = [str(HERE / name) for name in environment.tests]
    missing = [name for name in environment.tests if not (HERE / name).is_file()]
    if missing:
        return f"FAILED: there is no {', '.join(missing)}"
    try:
        python = make(environment)
    except subprocess.CalledProcessError as error:
        return f"FAILED: {' '.join(map(str, error.cmd))} ended with {error.returncode}"
    command = [str(python), "-m", "pytest", "-q", "-rs", *files, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=clean(), stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    last = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        last = line if line.strip() else last
    code = process.wait()
    passed = re.search(r"\d+ passed", last)
    # Tests may be skipped, but not all of them.
    return "{}{}".format("" if code == 0 and passed else "FAILED: ", last.strip(" =\n"))


def main() -> int:
    """Run the chosen environments, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="libraries or environments")
    parser.add_argument("--list", action="store_true", help="print what there is")
    parser.add_argument("--pytest", default="", metavar="ARGUMENTS", help="more for pytest")
    given = parser.parse_args()
    chosen = environments(given.names)
    if given.list:
        for one in chosen:
            print(f"{one.name:24} {' '.join(one.requirements)}")
        return 0
    rows = {}
    for one in chosen:
        print(f"--- {one.name}: {' '.join(one.requirements)}", flush=True)
        rows[one.name] = outcome(one, given.pytest.split())
    print(f"\n{'environment':24} outcome")
    for name, row in rows.items():
        print(f"{name:24} {row}")
    return 1 if any(row.startswith("FAILED") for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
