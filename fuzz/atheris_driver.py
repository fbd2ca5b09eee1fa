"""A coverage-guided fuzzer over the same oracle as `run.py`; needs `pip install atheris` (Linux).

    python fuzz/atheris_driver.py                            until something escapes
    python fuzz/atheris_driver.py -max_total_time=60         libFuzzer's options work
    python fuzz/atheris_driver.py fuzz/escapes/crash-...      one input again

Inputs are kept in `fuzz/corpus/`, filled from the tests' corpus the first time; what escapes comes
to `fuzz/escapes/`. Half of the mutations are libFuzzer's own; the others change the manifest as a
tree, with everything around it put in order again, since blind ones seldom get past its digest.
"""

from __future__ import annotations

import hashlib
import random
import sys
import warnings
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

with atheris.instrument_imports(include=["ztensor"]):
    import mutation

    import ztensor
    from ztensor.testing.promise import exercise

INPUTS = HERE / "corpus"
ESCAPES = HERE / "escapes"
LIMITS = ztensor.Limits(decoded_bytes=4 << 20)


def test_one_input(data: bytes) -> None:
    exercise(data, limits=LIMITS)


def mutate(data: bytes, most: int, seed: int) -> bytes:
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return atheris.Mutate(data, most)
    changed = mutation.mutated(rng, mutation.base_of(data), seed, 0)
    return changed if len(changed) <= most else atheris.Mutate(data, most)


def fill_inputs() -> None:
    INPUTS.mkdir(exist_ok=True)
    for base in mutation.corpus():
        path = INPUTS / hashlib.sha256(base.data).hexdigest()[:16]
        if not path.exists():
            path.write_bytes(base.data)


def main() -> None:
    warnings.simplefilter("error")
    arguments = sys.argv
    if all(argument.startswith("-") for argument in arguments[1:]):
        fill_inputs()
        ESCAPES.mkdir(exist_ok=True)
        bounds = [f"-max_len={mutation.SMALL}", "-timeout=5", f"-artifact_prefix={ESCAPES}/"]
        arguments = [*arguments, *bounds, str(INPUTS)]
    atheris.Setup(arguments, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
