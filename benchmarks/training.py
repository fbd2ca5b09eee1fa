"""Training states beside `torch.save`: the group `training`, with its goals.

    python -m benchmarks.training [--megabytes N] [--leaves N] [--rounds N] [--minutes N] [--cpu]
        [--only TEXT]

By default the state is that of GPT-2 with 124M parameters and AdamW (1.5 GB), and another has 10^5
small tensors. Rounds are interleaved: in each, everything is done once, in another order. A ratio
is the median of those within a round, so that a busy moment hits both sides. No round begins after
`--minutes`. It takes up to 7 GB of memory, and as much of the folder for temporary files. Needs
torch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch  # noqa: TID253  # a benchmark imports what it measures
from benchmarks.memory import prewarm

import ztensor
from ztensor.torch import load_tree, save_tree

WIDTH, VOCABULARY, POSITIONS = 768, 50257, 1024


class Goal(NamedTuple):
    """What is aimed at.

    Attributes:
        row: ours.
        against: the peer's.
        bound: the largest ratio that is a success.
    """

    row: str
    against: str
    bound: float


GOALS = (
    Goal("save, digests", "torch.save", 0.45),
    Goal("save, digests, durable", "torch.save", 0.6),
    Goal("load mapped", "torch.load", 0.05),
    Goal("load owned, checked", "torch.load", 0.8),
    Goal("load mapped, touched", "torch.load mmap, touched", 1.0),
    Goal("load mapped, checked, touched", "torch.load mmap, touched", 2.0),
    Goal("background save: the step waits", "one copy", 1.1),
    Goal("many: save", "many: torch.save", 0.4),
    Goal("many: load mapped", "many: torch.load", 0.15),
    Goal("many: load owned, checked", "many: torch.load", 0.15),
)


def state(megabytes: int) -> dict[str, Any]:
    """Return the state of a model of GPT-2's shapes and its optimizer, of about so many bytes."""
    torch.manual_seed(0)
    layers = max(1, min(12, round(12 * megabytes / 1490)))
    vocabulary = VOCABULARY * layers // 12
    shapes: dict[str, tuple[int, ...]] = {
        "wte": (vocabulary, WIDTH), "wpe": (POSITIONS * layers // 12, WIDTH),
    }  # fmt: skip
    for layer in range(layers):
        for name, shape in {
            "ln_1.weight": (WIDTH,), "ln_1.bias": (WIDTH,), "attn.c_attn.bias": (3 * WIDTH,),
            "attn.c_attn.weight": (WIDTH, 3 * WIDTH), "attn.c_proj.weight": (WIDTH, WIDTH),
            "attn.c_proj.bias": (WIDTH,), "ln_2.weight": (WIDTH,), "ln_2.bias": (WIDTH,),
            "mlp.c_fc.weight": (WIDTH, 4 * WIDTH), "mlp.c_fc.bias": (4 * WIDTH,),
            "mlp.c_proj.weight": (4 * WIDTH, WIDTH), "mlp.c_proj.bias": (WIDTH,),
        }.items():  # fmt: skip
            shapes[f"h.{layer}.{name}"] = shape
    parameters = {
        name: torch.nn.Parameter(torch.randn(shape) * 0.02) for name, shape in shapes.items()
    }
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-4)
    for parameter in parameters.values():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    model = {name: parameter.detach() for name, parameter in parameters.items()}
    return {"model": model, "optimizer": optimizer.state_dict(), "step": 1}


def many(leaves: int) -> dict[str, Any]:
    """Return a state of so many small tensors."""
    return {
        "state": {
            number: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(4), "lr": 0.1}
            for number in range(leaves // 2)
        }
    }


def leaves_of(tree: Any) -> Iterator[Any]:
    """Yield the tensors of a tree."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves_of(inner)


def touched(tree: Any) -> float:
    """Read every byte of a tree, as far as its tensors have many."""
    return sum(float(leaf.sum()) for leaf in leaves_of(tree) if leaf.is_floating_point())


def calls(tree: Any, small: Any, folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is measured, and write the files that are read."""
    ours, theirs, out = folder / "state.zt", folder / "state.pt", folder / "out"
    many_ours, many_theirs = folder / "many.zt", folder / "many.pt"
    save_tree(tree, ours)
    torch.save(tree, theirs)
    save_tree(small, many_ours)
    torch.save(small, many_theirs)
    manager = ztensor.CheckpointManager(folder / "run", keep=1, durable=False)
    manager.save(0, tree)
    manager.wait()
    numbers = iter(range(1, 1_000_000))
    held = [torch.empty_like(leaf) for leaf in leaves_of(tree)]

    def copy() -> None:
        for own, leaf in zip(held, leaves_of(tree), strict=True):
            own.copy_(leaf)

    def load(path: Path, **options: Any) -> Any:
        return torch.load(path, weights_only=True, **options)

    return {
        "torch.save": lambda: torch.save(tree, out),
        "save, digests": lambda: save_tree(tree, out.with_suffix(".zt"), durable=False),
        "save, digests, durable": lambda: save_tree(tree, out.with_suffix(".zt"), durable=True),
        "torch.load": lambda: load(theirs),
        "load mapped": lambda: load_tree(ours, copy=False),
        "load owned, checked": lambda: load_tree(ours),
        "torch.load mmap, touched": lambda: touched(load(theirs, mmap=True)),
        "load mapped, touched": lambda: touched(load_tree(ours, copy=False)),
        "load mapped, checked, touched": lambda: touched(load_tree(ours, copy=False, verify=True)),
        "one copy": copy,
        "background save: the step waits": lambda: manager.save(next(numbers), tree),
        "  (and the write ends)": manager.wait,
        "many: torch.save": lambda: torch.save(small, out),
        "many: save": lambda: save_tree(small, out.with_suffix(".zt"), durable=False),
        "many: torch.load": lambda: load(many_theirs),
        "many: load mapped": lambda: load_tree(many_ours, copy=False),
        "many: load owned, checked": lambda: load_tree(many_ours),
    }


def main() -> int:
    """Measure, print a table, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1490)
    parser.add_argument("--leaves", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--only", default="", help="goals with this in the name of their row")
    parser.add_argument(
        "--cpu", action="store_true", help="seconds of processors, where the machine is busy"
    )
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    seconds: dict[str, list[float]] = {}
    goals = [goal for goal in GOALS if options.only in goal.row]
    wanted = {name for goal in goals for name in (goal.row, goal.against)}
    with tempfile.TemporaryDirectory() as folder:
        todo = calls(state(options.megabytes), many(options.leaves), Path(folder))
        todo = {name: call for name, call in todo.items() if name in wanted or name[0] == " "}
        # What belongs together stays together: a save in the background has to end.
        groups = [[name] for name in todo if not name.startswith(("background", "  "))]
        groups.append([name for name in todo if name.startswith(("background", "  "))])
        end = time.monotonic() + 60 * options.minutes
        for number in range(options.rounds + 1):
            if number > 1 and time.monotonic() > end:
                print(f"{number - 1} rounds, then the time was over")
                break
            random.shuffle(groups)
            for name in (name for group in groups for name in group):
                if not name.startswith("  "):
                    prewarm(options.megabytes * 10**6)
                begin = clock()
                result = todo[name]()
                took = clock() - begin
                del result
                for written in Path(folder).glob("out*"):
                    written.unlink()
                if number:  # the first round warms up
                    seconds.setdefault(name, []).append(took)
    for name, found in seconds.items():
        print(f"{name:34} {min(found) * 1000:10,.1f} ms")
    missed = 0
    print()
    for goal in goals:
        pairs = zip(seconds[goal.row], seconds[goal.against], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        least = min(seconds[goal.row]) / min(seconds[goal.against])
        missed += ratio > goal.bound
        verdict = "met" if ratio <= goal.bound else "missed"
        print(
            f"{goal.row:34} / {goal.against:26} {ratio:6.2f}, of the least "
            f"{least:4.2f}  goal {goal.bound:4.2f}  {verdict}"
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
