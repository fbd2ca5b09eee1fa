"""The targets of `targets.py` under libFuzzer, guided by coverage; `pip install atheris` (Linux).

    python fuzz/atheris_driver.py gguf                          until something escapes
    python fuzz/atheris_driver.py gguf -max_total_time=600      libFuzzer's options work
    python fuzz/atheris_driver.py gguf fuzz/escapes/crash-...   one input again
    python fuzz/atheris_driver.py gguf --keep                   keep a small set of what it found

Inputs it finds go to `fuzz/found/TARGET/`, which is not committed; `--keep` copies the smallest set
of them with the same coverage to `fuzz/corpus/TARGET/`. What escapes comes to `fuzz/escapes/`. Half
of the mutations are libFuzzer's own; the others move the pieces of the format, with everything
around them put in order again, since blind ones seldom get past a length or a digest.
"""

from __future__ import annotations

import hashlib
import logging
import random
import sys
import warnings
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

with atheris.instrument_imports(include=["ztensor"]):
    import pieces
    import targets

    import ztensor.formats.gguf
    import ztensor.formats.hdf5
    import ztensor.formats.keras
    import ztensor.formats.npy
    import ztensor.formats.npz
    import ztensor.formats.onnx
    import ztensor.formats.pt
    import ztensor.formats.safetensors
    import ztensor.io.reading.recovery
    import ztensor.spec.container.kinds
    import ztensor.spec.encoding.zstd
    from ztensor.testing.promise import refusal_of

LONGEST = 4096  # bytes of an input
WHOLE = 16  # every so many inputs get all that users do


class Driver:
    """One target, as libFuzzer wants it."""

    def __init__(self, target: targets.Target) -> None:
        self._target = target
        self._count = 0

    def test(self, data: bytes) -> None:
        """Run one input; let escape what may not be."""
        self._count += 1
        try:
            self._target.run(data, whole=self._count % WHOLE == 0)
        except ztensor.ZTensorError as error:
            refusal_of(error, "open")

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Return a variation of an input."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return atheris.Mutate(data, most)
        changed = pieces.varied(rng, data, self._target.pieces(data))
        return changed if len(changed) <= most else atheris.Mutate(data, most)


def filled(folder: Path, target: targets.Target) -> Path:
    """Return a folder with a target's seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        if len(data) <= LONGEST:
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return folder


def main() -> None:
    warnings.simplefilter("error")
    logging.getLogger("ztensor").disabled = True
    if len(sys.argv) < 2 or sys.argv[1] not in targets.TARGETS:
        sys.exit(f"usage: atheris_driver.py TARGET [options]; one of {', '.join(targets.TARGETS)}")
    target = targets.TARGETS[sys.argv[1]]
    # As a command, since merging starts it again.
    arguments = [f"{sys.executable} {Path(__file__).resolve()} {target.name}", *sys.argv[2:]]
    escapes = HERE / "escapes"
    escapes.mkdir(exist_ok=True)
    found = HERE / "found" / target.name
    arguments += [
        f"-max_len={LONGEST}",
        "-timeout=10",
        f"-artifact_prefix={escapes}/{target.name}-",
    ]
    if "--keep" in arguments:
        arguments.remove("--keep")
        kept = targets.KEPT / target.name
        kept.mkdir(parents=True, exist_ok=True)
        arguments += ["-merge=1", str(kept), str(found)]
    elif all(argument.startswith("-") for argument in arguments[1:]):
        arguments.append(str(filled(found, target)))
    driver = Driver(target)
    atheris.Setup(arguments, driver.test, custom_mutator=driver.mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
