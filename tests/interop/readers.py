"""Which released wheel reads which version that we write: the table of README.md, tried.

    python tests/interop/readers.py

Each version is written as a file of dense tensors, raw and compressed, and each wheel reads all of
them. A cell is "yes" where a wheel gives every element back. It ends with status 1 where the table
of the README says something else.

A file with a tensor in planes is opened by the last wheels of 1.x and 2.x, too: they read the other
tensor and refuse that one, which the page of planes says.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import ztensor
from tests.interop.run import ROOT, environment, python_of
from ztensor.numpy import save_file

WHEELS = ("0.1.4", "1.1.1", "1.2.3", "2.1.2")
VERSIONS = {  # and how the README calls each
    "0.1.0": '`version="0.1.0"`',
    "1.1.0": '`version="1.1.0"`',
    "1.2.0": "1.2.0, the default",
    "2.1": '`version="2.1"`',
}
# What a user of any of the wheels would write: prints the sum of the elements of a file.
PROGRAM = """
import sys
import numpy as np
import ztensor
total = 0.0
if hasattr(ztensor, "Reader"):
    reader = ztensor.Reader(sys.argv[1])
    read = getattr(reader, "read_tensor", reader.__getitem__)
    for each in reader.keys() if hasattr(reader, "keys") else reader:
        view = read(getattr(each, "name", each))  # what an array of 0.1 and 1.1 has needs it
        total += float(np.asarray(view).sum())
else:
    source = ztensor.open(sys.argv[1])
    for name in source:
        total += float(np.frombuffer(source[name].tobytes(), "<f4").sum())
print(total)
"""


# Prints the sum of the tensor "raw", and the error that another one of the file raises.
PLANES = """
import sys
import numpy as np
import ztensor
if hasattr(ztensor, "Reader"):
    reader = ztensor.Reader(sys.argv[1])
    read = getattr(reader, "read_tensor", reader.__getitem__)
    names = [getattr(each, "name", each) for each in reader]
    get = lambda name: np.asarray(read(name))
else:
    source = ztensor.open(sys.argv[1])
    names = list(source)
    get = lambda name: np.frombuffer(source[name].tobytes(), "<f4")
assert sorted(names) == ["planes", "raw"], names
print(float(get("raw").sum()))
try:
    get("planes")
except Exception as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("planes were read")
"""
REFUSALS = {  # the last wheel of a container, the version of the file, a part of its error
    "1.2.3": ("1.2.0", "dense"),
    "2.1.2": ("2.1", "pyztensor.planes/1"),
}


def output(wheel: str, program: str, path: Path) -> list[str]:
    """Return the lines that a program with a wheel prints; none where it fails."""
    run = subprocess.run(
        [python_of(wheel), "-c", program, str(path)],
        env=environment(),
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return run.stdout.splitlines() if run.returncode == 0 else [run.stderr[-300:]]


def reads(wheel: str, path: Path, total: float) -> bool:
    """Return whether a wheel reads all elements of a file."""
    lines = output(wheel, PROGRAM, path)
    return lines[-1:] == [str(total)]


def refuses_planes(wheel: str, folder: str) -> bool:
    """Return whether a wheel reads a tensor beside one in planes, and refuses that one."""
    version, error = REFUSALS[wheel]
    path, raw = Path(folder, f"planes-{version}.zt"), np.arange(400, dtype=np.float32)
    with ztensor.Writer(path, version=version) as writer:
        writer.write("raw", raw)
        writer.write("planes", np.ones((100, 100), np.float32), compress="planes")
    lines = output(wheel, PLANES, path)
    print(f"{version:6} with planes, read by {wheel}:", *lines, flush=True)
    return lines[:1] == [str(float(raw.sum()))] and error in lines[-1]


def main() -> int:
    """Print the table, and return 1 where the README's is another."""
    readme = (ROOT / "README.md").read_text("utf-8")
    tensors = {"w": np.arange(4000, dtype=np.float32).reshape(40, 100), "b": np.ones(3, np.float32)}
    total = float(sum(array.sum() for array in tensors.values()))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for version, title in VERSIONS.items():
            paths = [Path(folder, f"{version}-{kind}.zt") for kind in ("raw", "zstd")]
            for path in paths:
                save_file(tensors, path, version=version, compression=path.stem.endswith("zstd"))
            found = [all(reads(wheel, path, total) for path in paths) for wheel in WHEELS]
            row = re.search(rf"^\| {re.escape(title)} \| (.+) \|$", readme, re.MULTILINE)
            said = [cell.strip(" *").startswith("yes") for cell in row[1].split("|")] if row else []
            print(f"{version:6}", dict(zip(WHEELS, found, strict=True)), flush=True)
            if said != [*found, True]:
                print(f"README.md says {said}")
                wrong += 1
        wrong += sum(not refuses_planes(wheel, folder) for wheel in REFUSALS)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
