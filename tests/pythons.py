"""Run the framework-free suite on every CPython of 3.11 and newer found on this machine.

Each interpreter gets its own environment under `.venvs/`, the package built and installed as a
user would have it, and one line in the output. The full output of a run lies beside it.

    python tests/pythons.py                      every interpreter on PATH and under ~/.pyenv
    python tests/pythons.py python3.12 /opt/py   these
    python tests/pythons.py --minimum python3.11 with the oldest dependencies pyproject.toml allows
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venvs"
OLDEST = (3, 11)
SUITE = [
    "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider",
    "-m", "not real and not interop and not fuzz",
]  # fmt: skip
PROBE = """
import importlib.util, json, sys, sysconfig
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": list(sys.version_info[:3]),
    "release": sys.version_info.releaselevel,
    "threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
}))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython that answered.

    Attributes:
        command: how to start it.
        version: major, minor, patch.
        name: version as text; "t" marks the free-threaded build.
        has_venv: it can make environments; Linux distributions split that off.
    """

    command: str
    version: tuple[int, int, int]
    name: str
    has_venv: bool


def probe(command: str) -> Interpreter | None:
    """Ask `command` what it is; None where it does not start or is not a CPython we support."""
    try:
        answer = subprocess.run(
            [command, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
        )
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # a shim of a version manager without a version behind it, for one
    major, minor, patch = facts["version"]
    if facts["implementation"] != "cpython" or (major, minor) < OLDEST:
        return None
    suffix = ("" if facts["release"] == "final" else facts["release"]) + "t" * facts["threaded"]
    name = f"{major}.{minor}.{patch}{suffix}"
    return Interpreter(command, (major, minor, patch), name, facts["venv"])


def candidates() -> list[str]:
    """Return every file on PATH and under ~/.pyenv that is named like a Python 3."""
    pattern = re.compile(r"python3\.\d+t?(\.exe)?")
    folders = [Path(folder) for folder in os.get_exec_path() if Path(folder).is_dir()]
    found = [
        str(file)
        for folder in folders
        for file in sorted(folder.iterdir())
        if pattern.fullmatch(file.name)
    ]
    found += [str(file) for file in sorted(Path.home().glob(".pyenv/versions/*/bin/python"))]
    return [sys.executable, *found]


def interpreters(commands: list[str]) -> list[Interpreter]:
    """Return one interpreter per version, oldest first; one that can make environments wins."""
    best: dict[str, Interpreter] = {}
    for command in commands:
        found = probe(command)
        if found is not None and (found.name not in best or not best[found.name].has_venv):
            best[found.name] = found
    return sorted(best.values(), key=lambda found: (found.version, found.name))


def minimums() -> list[str]:
    """Return `name==floor` for every dependency that pyproject.toml gives as `name>=floor`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [requirement.replace(">=", "==", 1) for requirement in project["dependencies"]]


def run_suite(interpreter: Interpreter, *, minimum: bool, pytest_args: list[str]) -> bool:
    """Make the environment, run the suite in it and print one line; tell whether it passed."""
    name = interpreter.name + ("-minimum" if minimum else "")
    folder = ENVIRONMENTS / name
    folder.mkdir(parents=True, exist_ok=True)
    python = str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    pip = [python, "-m", "pip", "--quiet", "--retries", "5"]
    pins = minimums() if minimum else []
    steps = {
        "environment": [interpreter.command, "-m", "venv", str(folder)],
        "pip": [*pip, "install", "pip>=25.1"],  # the first that reads dependency groups
        "install": [*pip, "install", "--upgrade", str(ROOT), "--group", "core-test", *pins],
        "suite": [python, *SUITE, *pytest_args],
    }
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    log = folder / "suite.log"
    start = time.monotonic()
    failed = None
    with log.open("wb") as output:
        for step, command in steps.items():
            if subprocess.call(command, cwd=ROOT, env=environment, stdout=output, stderr=output):
                failed = step
                break
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    verdict = "passed" if failed is None else f"FAILED in {failed}"
    print(f"{name:16} {verdict:22} {time.monotonic() - start:5.0f} s  {lines[-1]}", flush=True)
    if failed is not None:
        print("\n".join(f"    {line}" for line in lines[-30:]), flush=True)
    return failed is None


def main() -> int:
    """Run the suite everywhere; return the exit status: 0 only if it passed everywhere."""
    parser = argparse.ArgumentParser(description="Run the suite on several interpreters.")
    parser.add_argument("command", nargs="*", help="interpreters; without one, all that are found")
    parser.add_argument("--minimum", action="store_true", help="install the oldest dependencies")
    parser.add_argument("--pytest-args", default="", help="more arguments for pytest, in one word")
    options = parser.parse_args()
    found = interpreters(options.command or candidates())
    if not found:
        print("no CPython of 3.11 or newer found")
        return 1
    passed = []
    for interpreter in found:
        if interpreter.has_venv:
            arguments = options.pytest_args.split()
            passed.append(run_suite(interpreter, minimum=options.minimum, pytest_args=arguments))
        else:
            print(f"{interpreter.name:16} skipped: {interpreter.command} has no ensurepip")
    print(f"{sum(passed)} of {len(passed)} interpreters passed")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
