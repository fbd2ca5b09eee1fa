"""Which released wheel reads which version that we write: the table of README.md, tried.

    python tests/interop/readers.py

Each version is written as a file of dense tensors, raw and compressed, and each wheel reads all of
them. A cell is "yes" where a wheel gives every element back. It ends with status 1 where the table
of the README says something else.

The last wheels of 1.x and 2.x also open a file with a tensor in planes, and a delta beside a
tensor: they read the tensor and refuse the other object. The wheel of 2.x gives the bytes of a
delta, as many as there are.
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
BESIDE = """
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
assert sorted(names) == ["other", "raw"], names
print(float(get("raw").sum()))
if not hasattr(ztensor, "Reader") and source["other"].layout == "pyztensor.delta/1":
    tensor = source["other"]
    array = np.from_dlpack(tensor)
    assert array.shape == (tensor.nbytes,), array.shape
    print(array.dtype, "vector of all bytes")
    raise SystemExit(0)
try:
    get("other")
except Exception as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("the other object was read")
"""
# The last wheel of a container, the version of the file, and parts of its errors.
REFUSALS = {
    "1.2.3": ("1.2.0", {"planes": "dense", "delta": "dense"}),
    "2.1.2": ("2.1", {"planes": "pyztensor.planes/1", "delta": "uint8 vector of all bytes"}),
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


def refuses(wheel: str, kind: str, folder: str) -> bool:
    """Return whether a wheel reads a tensor beside planes or a delta, and refuses that object."""
    version, errors = REFUSALS[wheel]
    path, raw = Path(folder, f"{kind}-{version}.zt"), np.arange(400, dtype=np.float32)
    other = np.ones((100, 100), np.float32)
    if kind == "delta":
        ztensor.delta.make({"other": other}, {"other": 2 * other}, path, version=version)
    else:
        with ztensor.Writer(path, version=version) as writer:
            writer.write("other", other, compress="planes")
    with ztensor.Editor(path) as editor:
        editor.write("raw", raw)
        editor.finish()
    lines = output(wheel, BESIDE, path)
    print(f"{version:6} with {kind}, read by {wheel}:", *lines, flush=True)
    return lines[:1] == [str(float(raw.sum()))] and errors[kind] in lines[-1]


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
        for wheel, (_, errors) in REFUSALS.items():
            wrong += sum(not refuses(wheel, kind, folder) for kind in errors)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
