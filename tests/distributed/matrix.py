"""What may stand in a state, and what becomes of it in each library, as a table.

    python -m tests.distributed.matrix

Each value is saved and loaded by one process; then each file of a checkpoint of three processes is
damaged, and two load it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.distributed import states
from tests.distributed.processes import Ended, Processes
from tests.distributed.values import FAILING, LIBRARIES, REFUSED, VALUES, outcome

_SHOWN = {"ztensor": "ztensor", "torch": "FileSystemWriter", "hf": "HuggingFaceStorageWriter"}
_HOW = ("missing", "cut in half", "flipped")


def damaged(processes: Processes, folder: Path, library: str, how: str) -> str:
    """Return what comes of a checkpoint, each of whose files is damaged in turn."""
    saving: dict[str, Any] = {
        "folder": folder,
        "library": library,
        "placement": "0",
        "values": False,
    }
    processes.right(3, "tests.distributed.tasks.save", **saving)
    found: dict[str, int] = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        path.unlink()
        if how == "cut in half":
            path.write_bytes(data[: len(data) // 2])
        elif how == "flipped":
            at = _place(data)
            path.write_bytes(bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]))
        loading = {**saving, "placement": "r"}
        word = _judged(processes.run(2, "tests.distributed.tasks.load", **loading))
        found[word] = found.get(word, 0) + 1
        path.write_bytes(data)
    return ", ".join(f"{count} {word}" for word, count in sorted(found.items()))


def _place(data: bytes) -> int:
    """Return where numbers of a tensor lie; the middle where there are none."""
    for name, shape in states.SHAPES.items():
        numbers = states.whole(name, shape, 1).reshape(-1).numpy()
        for first in range(len(numbers) - 1):
            found = data.find(numbers[first : first + 2].tobytes())
            if found >= 0:
                return found
    return len(data) // 2


def _judged(ended: list[Ended]) -> str:
    if all(one.status == 0 for one in ended):
        return "loaded wrong" if any(one.result for one in ended) else "loaded right"
    if any(one.status == 0 for one in ended):
        return "refused by some"
    return "refused"


def main() -> None:
    print("| value |", " | ".join(_SHOWN[library] for library in LIBRARIES), "|")
    print("| --- |", " --- |" * len(LIBRARIES))
    with tempfile.TemporaryDirectory() as place, Processes() as processes:
        for number, (name, make) in enumerate({**VALUES, **REFUSED, **FAILING}.items()):
            row = [outcome(one, make, Path(place) / f"{number}-{one}") for one in LIBRARIES]
            print(f"| {name} |", " | ".join(row), "|", flush=True)
        print("\n| each file |", " | ".join(_SHOWN[library] for library in LIBRARIES), "|")
        print("| --- |", " --- |" * len(LIBRARIES))
        for how in _HOW:
            row = [
                damaged(processes, Path(place) / f"{library} {how}", library, how)
                for library in LIBRARIES
            ]
            print(f"| {how} |", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
