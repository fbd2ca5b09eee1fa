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
# What a user of any of the wheels would write: prints the type, length and sum of each object of a
# file, or the error that it raises.
PROGRAM = """
import sys
import numpy as np
import ztensor
if hasattr(ztensor, "Reader"):
    reader = ztensor.Reader(sys.argv[1])
    read = getattr(reader, "read_tensor", reader.__getitem__)
else:
    reader = ztensor.open(sys.argv[1])
    def read(name):
        tensor = reader[name]
        is_dense = tensor.layout == "dense"
        return np.frombuffer(tensor.tobytes(), "<f4") if is_dense else np.from_dlpack(tensor)
for each in reader.keys() if hasattr(reader, "keys") else reader:
    name = getattr(each, "name", each)
    try:
        view = read(name)  # what an array of 0.1 and 1.1 has needs it
        array = np.asarray(view)
        print(name, array.dtype, array.size, float(array.sum()))
    except Exception as error:
        print(name, type(error).__name__, error)
"""
# The last wheel of a container, the version of the file, and parts of what it prints.
REFUSALS = {
    "1.2.3": ("1.2.0", {"planes": "dense", "delta": "dense"}),
    "2.1.2": ("2.1", {"planes": "pyztensor.planes/1", "delta": "uint8 {nbytes}"}),
}


def output(wheel: str, path: Path) -> list[str]:
    """Return the lines that the program prints with a wheel, or the end of its error."""
    run = subprocess.run(
        [python_of(wheel), "-c", PROGRAM, str(path)],
        env=environment(),
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return run.stdout.splitlines() if run.returncode == 0 else [run.stderr[-300:]]


def line(name: str, array: np.ndarray) -> str:
    """Return what the program prints of an array."""
    return f"{name} {array.dtype} {array.size} {float(array.sum())}"


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
    with ztensor.open(path) as reader:
        nbytes = reader.metadata("other").stored_nbytes
    found = dict(text.split(" ", 1) for text in output(wheel, path))
    print(f"{version:6} with {kind}, read by {wheel}:", found, flush=True)
    is_read = found.keys() == {"raw", "other"} and f"raw {found['raw']}" == line("raw", raw)
    return is_read and errors[kind].format(nbytes=nbytes) in found["other"]


def main() -> int:
    """Print the table, and return 1 where the README's is another."""
    readme = (ROOT / "README.md").read_text("utf-8")
    tensors = {"w": np.arange(4000, dtype=np.float32).reshape(40, 100), "b": np.ones(3, np.float32)}
    expected = [line(name, tensors[name]) for name in sorted(tensors)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for version, title in VERSIONS.items():
            paths = [Path(folder, f"{version}-{kind}.zt") for kind in ("raw", "zstd")]
            for path in paths:
                save_file(tensors, path, version=version, compression=path.stem.endswith("zstd"))
            found = [
                all(sorted(output(wheel, path)) == expected for path in paths) for wheel in WHEELS
            ]
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
