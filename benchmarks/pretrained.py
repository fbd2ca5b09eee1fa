"""A model of transformers from `.zt` beside its own `from_pretrained`: time and private memory.

    .venvs/ecosystem-transformers-newest/bin/python -m benchmarks.pretrained [--rounds N] [--cpu]

`make suite SUITE=ecosystem` makes that environment. The model is a Llama of 330 MB with random
weights. Each load is in a process of its own, in turn, with both libraries imported and a small
model loaded before the clock starts. Private memory is what the process has to itself: pages of
files that it maps are not, so weights that are views of the file cost none. Both sides map the
file, so a load is mostly the library making the model: what ours spends in functions of the
library is measured apart, since it is the least a load through them can take. A second column
adds the sum of every weight, which reads all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import prewarm

# Ratios of ours to the library's own, of medians; and private memory that may be more, in MB.
MOST_TIME, MOST_MORE = 0.7, 8.0
SIZES: dict[str, Any] = {
    "large": {"vocab_size": 16_000, "hidden_size": 1024, "intermediate_size": 2816, "layers": 4},
    "small": {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "layers": 1},
}
SIDES = ("ours", "stock")
MODEL_BYTES = 330 * 10**6


def make(folder: Path) -> None:
    """Write the models, as the library does, and converted."""
    import torch
    import transformers

    import ztensor

    for name, size in SIZES.items():
        torch.manual_seed(0)
        own = {key: value for key, value in size.items() if key != "layers"}
        config = transformers.LlamaConfig(
            **own, num_hidden_layers=size["layers"], num_attention_heads=8
        )
        stock = folder / name / "stock"
        transformers.LlamaForCausalLM(config).save_pretrained(stock)
        ztensor.convert_folder(stock, folder / name / "ours")


class Within:
    """Adds up the time that is spent in some functions, one within another counted once.

    Args:
        clock: tells the time.
        functions: owners and names of class methods.
    """

    def __init__(self, clock: Callable[[], float], *functions: tuple[type, str]) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._depth = 0
        for owner, name in functions:
            setattr(owner, name, classmethod(self._timed(owner.__dict__[name].__func__)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._depth += 1
            begin = self._clock()
            try:
                return function(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += self._clock() - begin

        return call


def private_megabytes() -> float:
    """Return the memory that this process has to itself."""
    status = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    found = [line.split() for line in status.splitlines() if line.startswith("Private_Dirty")]
    return int(found[0][1]) / 1000


def load(side: str, folder: Path, *, is_cpu: bool) -> dict[str, float]:
    """Load the model in this process, and return what it took."""
    import transformers

    from ztensor.transformers import from_pretrained

    def one(name: str) -> Any:
        place = folder / name / side
        if side == "ours":
            return from_pretrained(place, transformers.AutoModelForCausalLM)
        return transformers.AutoModelForCausalLM.from_pretrained(place)

    transformers.utils.logging.disable_progress_bar()
    clock = time.process_time if is_cpu else time.perf_counter
    library = Within(
        clock,
        (transformers.PreTrainedModel, "from_pretrained"),
        (transformers.PreTrainedConfig, "from_dict"),
        (transformers.GenerationConfig, "from_dict"),
    )
    one("small")
    library.seconds = 0.0
    prewarm(MODEL_BYTES)
    before, begin = private_megabytes(), clock()
    model = one("large")
    loaded, private = clock() - begin, private_megabytes() - before
    within = library.seconds
    for weight in model.parameters():
        weight.detach().sum()
    touched = clock() - begin
    return {"loaded": loaded, "library": within, "touched": touched, "private": private}


def main() -> int:
    """Measure, print a table, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="seconds of processors")
    parser.add_argument("--load", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        side, place = options.load
        print(json.dumps(load(side, Path(place), is_cpu=options.cpu)))
        return 0
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for number in range(options.rounds):
            for side in SIDES if number % 2 else reversed(SIDES):
                command = [sys.executable, "-m", "benchmarks.pretrained", "--load", side, folder]
                command += ["--cpu"] if options.cpu else []
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                found[side].append(json.loads(run.stdout.splitlines()[-1]))
    middle = {
        side: {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        for side, rows in found.items()
    }
    for side, row in middle.items():
        loaded, read = row["loaded"] * 1000, row["touched"] * 1000
        print(
            f"{side:6} loaded {loaded:8.1f} ms   touched {read:8.1f} ms   "
            f"{row['private']:8.1f} MB private"
        )
    ratio = middle["ours"]["loaded"] / middle["stock"]["loaded"]
    least = middle["ours"]["library"] / middle["stock"]["loaded"]
    touched = middle["ours"]["touched"] / middle["stock"]["touched"]
    more = middle["ours"]["private"] - middle["stock"]["private"]
    is_met = ratio <= MOST_TIME and more <= MOST_MORE
    print(
        f"from_pretrained: time {ratio:.2f}, goal {MOST_TIME}; {least:.2f} of it in functions of "
        f"the library; touched {touched:.2f}; "
        f"private memory {more:+.1f} MB, goal {MOST_MORE:+.0f}  {'met' if is_met else 'missed'}"
    )
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
