"""Measure this checkout beside other libraries, in one interleaved run.

    python benchmarks/run.py                           quick: under ten minutes on two cores
    python benchmarks/run.py --full --write-docs       everything, and the page in docs/
    python benchmarks/run.py --foreign                 files of other libraries, read by them and us
    python benchmarks/run.py --workloads many --rounds 20
    python benchmarks/run.py --before ../old           beside another checkout of ours
    python benchmarks/run.py --render build/benchmarks/full.json --write-docs

Each peer lives in its own environment and a process of its own, which forks a child for every
measurement. In each round the operations come in another order, and for each operation the peers;
a ratio is taken between two measurements of the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import foreign, machine, report
from benchmarks.environments import (
    BEFORE,
    EVERYONE,
    PEERS,
    ROOT,
    CannotInstall,
    Peer,
    copy_checkout,
    make_environment,
    server_environment,
)
from benchmarks.measuring import Request, word_sum
from benchmarks.memory import available_memory
from benchmarks.ratios import Sample
from benchmarks.record import Run
from benchmarks.workloads import (
    FOREIGN,
    WORKLOADS,
    Source,
    Workload,
    stored_bytes,
    write_source,
)

RESULTS = ROOT / "build" / "benchmarks"
DOCS = ROOT / "docs"
OTHERS_EVERY = 3  # rounds in which the peers take part that are slower by multiples
LEAST_ROUNDS = 3
REPLY_SECONDS = 660.0  # a little more than the server gives its child


class PeerFailed(Exception):
    """A peer's process ended or fell silent; the message says what is known."""


class Server:
    """The resident process of one peer.

    Args:
        peer: whose.
        python: the interpreter of its environment.
        checkout: the copy of our package.
        log: file for whatever it prints.

    Raises:
        PeerFailed: it cannot import its library; the message is the end of its log.
    """

    def __init__(self, peer: Peer, python: Path, checkout: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.server", peer.module],
                cwd=ROOT,
                env=server_environment(peer, checkout),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        hello = self._reply()
        self.versions: dict[str, str] = hello["versions"]
        self.threads_left: int = hello["threads_left"]

    def ask(self, request: Request) -> dict[str, Any]:
        """Have one thing done and return the answer."""
        if self._process.stdin is None:
            raise PeerFailed("it has no input")
        try:
            print(json.dumps(dataclasses.asdict(request)), file=self._process.stdin, flush=True)
        except OSError as error:
            raise PeerFailed(self._last_words()) from error
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        output = self._process.stdout
        if output is None:
            raise PeerFailed("it has no output")
        ready, _, _ = select.select([output], [], [], REPLY_SECONDS)
        line = output.readline() if ready else ""
        if not line:
            raise PeerFailed(self._last_words())
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it ended without a word"

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the process."""
        self.close()


class Harness:
    """One run: its peers, its files, its samples.

    Args:
        options: the command line.
        folder: where the files go.
        end: the moment to be done by, on `time.monotonic`.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, end: float) -> None:
        self.options = options
        self.folder = folder
        self.end = end
        self.random = Random(options.seed)  # noqa: S311  # an order, no secret
        self.servers: dict[str, Server] = {}
        self.run = Run(
            mode="full" if options.full else "quick",
            is_foreign=options.foreign,
            date=machine.now(),
            seed=options.seed,
            machine=machine.describe(),
        )

    def say(self, text: str) -> None:
        """Print a line of progress."""
        if not self.options.quiet:
            print(text, file=sys.stderr, flush=True)

    def start_servers(self, names: Sequence[str], exits: contextlib.ExitStack) -> None:
        """Start every peer that can be installed; note why of the others."""
        checkout = self.folder / "checkout"
        copy_checkout(checkout)
        earlier = self.folder / "before"
        if self.options.before is not None:
            copy_checkout(earlier, self.options.before)
        for name in names:
            peer = EVERYONE[name]
            self.run.titles[name] = peer.title
            try:
                self.say(f"{peer.title}: preparing its environment")
                python = make_environment(peer)
                package = earlier if peer is BEFORE else checkout
                server = Server(peer, python, package, self.folder / f"{name}.log")
            except (CannotInstall, PeerFailed, OSError) as error:
                self.run.absent[name] = str(error)
                self.say(f"{peer.title}: left out: {error}")
            else:
                exits.enter_context(server)
                self.servers[name] = server
                self.run.versions[name] = server.versions
                if server.threads_left > 0:
                    warning = f"{peer.title} leaves threads running, which a fork does not have"
                    self.run.warnings.append(warning)

    def measure(self, workloads: Sequence[Workload]) -> None:
        """Measure all workloads, each with its share of the time."""
        for index, workload in enumerate(workloads):
            weights = [one.weight for one in workloads[index:]]
            share = (self.end - time.monotonic()) * weights[0] / sum(weights)
            self._measure_workload(workload, time.monotonic() + share)
        self.run.machine["load_at_end"] = machine.load()

    def _measure_workload(self, workload: Workload, end: float) -> None:
        is_full = self.options.full
        size = workload.size(is_full=is_full) or workload.full
        nbytes = stored_bytes(workload.plan(size))
        reason = self._lack_of_space(workload, nbytes)
        if reason is not None:
            self.run.skipped[workload.name] = reason
            self.say(f"{workload.title}: left out: {reason}")
            return
        self.say(f"{workload.title}: {nbytes / 1e6:,.0f} MB")
        folder = self.folder / workload.name
        folder.mkdir()
        try:
            source = write_source(workload, size, folder, self.options.seed)
            self.run.workloads[workload.name] = {
                "title": workload.title,
                "nbytes": source.nbytes,
                "tensors": len(source.names),
            }
            requests = _Requests(workload, source, folder)
            groups = self._groups(workload)
            for index, group in enumerate(groups):
                share = (end - time.monotonic()) / (len(groups) - index)
                peers = [name for name in group if self._prepare(name, requests)]
                self._rounds(workload, requests, peers, time.monotonic() + share)
                for path in folder.glob("*.file"):
                    path.unlink()
        finally:
            shutil.rmtree(folder)

    def _groups(self, workload: Workload) -> list[list[str]]:
        """Return who is measured in turn, one group after the other."""
        if self.options.foreign:
            return foreign.groups(workload.name, list(self.servers))
        names = self.servers
        return [[n for n in names if EVERYONE[n].is_serious or not workload.only_serious]]

    def _prepare(self, name: str, requests: _Requests) -> bool:
        """Have the peer store its file and compare every byte; tell whether it takes part."""
        reply = self._ask(name, requests.make(name, "prepare"))
        problem = reply.get("error") or reply.get("lacks")
        if problem is None:
            self.run.files.setdefault(requests.workload.name, {})[name] = reply["nbytes"]
            return True
        self.run.note(requests.workload.name, "", name, problem, is_error="error" in reply)
        self.say(f"  {name}: {problem}")
        return False

    def _rounds(
        self, workload: Workload, requests: _Requests, peers: list[str], end: float
    ) -> None:
        operations = list(workload.chosen(is_full=self.options.full))
        lacking: set[tuple[str, str]] = set()
        start = time.monotonic()
        for count in range(self.options.rounds if peers else 0):
            after_next = time.monotonic() + (time.monotonic() - start) / max(1, count)
            # A workload may take from the others to have its least; all of them together may not.
            if count and after_next > (end if count >= LEAST_ROUNDS else self.end):
                break
            for name, operation in order_of_round(self.random, peers, operations, count):
                if (name, operation) in lacking:
                    continue
                reply = self._ask(name, requests.make(name, operation))
                problem = reply.get("error") or reply.get("lacks")
                if problem is not None:
                    lacking.add((name, operation))
                    is_error = "error" in reply
                    self.run.note(workload.name, operation, name, problem, is_error=is_error)
                    if is_error:
                        self.say(f"  {name}, {operation}: {problem}")
                    continue
                figures = reply["wall"], reply["cpu"], reply["peak"]
                self.run.samples.add(Sample(workload.name, operation, name, count, *figures))
                if "nbytes" in reply:
                    sizes = self.run.files.setdefault(f"{workload.name} {operation}", {})
                    sizes[name] = reply["nbytes"]
            self.say(f"  {peers[0]}, round {count + 1}: {time.monotonic() - start:.0f} s")

    def _ask(self, name: str, request: Request) -> dict[str, Any]:
        server = self.servers.get(name)
        if server is None:
            return {"error": "its process ended earlier"}
        try:
            return server.ask(request)
        except PeerFailed as error:
            del self.servers[name]
            return {"error": str(error)}

    def _lack_of_space(self, workload: Workload, nbytes: int) -> str | None:
        # A source, a file per peer, one being saved; some formats align tensors to pages.
        padding = 4096 * sum(1 for _ in workload.plan(workload.size(is_full=self.options.full)))
        files = max(map(len, self._groups(workload)), default=0)
        disk = (files + 2) * int(1.05 * nbytes) + 2 * padding
        free = shutil.disk_usage(self.folder).free
        if disk > free:
            return f"needs {disk / 1e9:.1f} GB in {self.folder}, {free / 1e9:.1f} GB are free"
        memory = int(2.5 * nbytes)  # the tensors, a copy by a peer, and room
        if memory > available_memory():
            return f"needs {memory / 1e9:.1f} GB of memory, which are not free"
        return None


def order_of_round(
    random: Random, peers: Sequence[str], operations: Sequence[str], count: int
) -> Iterator[tuple[str, str]]:
    """Yield a round's measurements: operations shuffled, and for each of them the peers."""
    is_pair = any(EVERYONE[name].reads for name in peers)  # of one file, compared in all rounds
    present = [
        name for name in peers if EVERYONE[name].is_serious or is_pair or count % OTHERS_EVERY == 0
    ]
    for operation in random.sample(list(operations), len(operations)):
        for name in random.sample(present, len(present)):
            yield name, operation


class _Requests:
    """Makes what is sent to the servers for one workload."""

    def __init__(self, workload: Workload, source: Source, folder: Path) -> None:
        self.workload = workload
        self._folder = folder
        tensors = source.tensors()
        self._one = source.names[len(source.names) // 2]
        self._rest = {
            "source": str(folder),
            "nbytes": source.nbytes,
            "total": word_sum(tensors.values()),
            "one": self._one,
            "one_total": word_sum([tensors[self._one]]),
        }

    def make(self, peer: str, operation: str) -> Request:
        """Return the request that has `peer` do `operation`."""
        reads = EVERYONE[peer].reads
        of_peer = {
            "path": str(self._folder / f"{reads or peer}.file"),
            "target": str(self._folder / f"{peer}.saved"),
            "stored_by": "" if reads else self.workload.stored_by,
        }
        return Request(operation=operation, **of_peer, **self._rest)  # type: ignore[arg-type]  # dicts of several types


# --- The command ------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description="Measure this checkout beside other libraries.",
        epilog=f"peers: {', '.join(EVERYONE)}; workloads: {', '.join(WORKLOADS | FOREIGN)}",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small data, few peers (the default)")
    size.add_argument("--full", action="store_true", help="all sizes, operations and peers")
    parser.add_argument("--foreign", action="store_true", help="only files of other libraries")
    parser.add_argument("--dir", type=Path, help="where the files go; not a tmpfs")
    parser.add_argument("--rounds", type=int, help="at most so many (quick: 11, full: 9)")
    parser.add_argument("--minutes", type=float, help="be done by then (quick: 8.5, full: 90)")
    parser.add_argument("--seed", type=int, default=1, help="of the data and the order")
    parser.add_argument("--peers", help="comma-separated names, or all")
    parser.add_argument("--before", type=Path, help="another checkout of ours, in the same run")
    parser.add_argument("--torch", action="store_true", help="also torch, which is large")
    parser.add_argument("--workloads", help="comma-separated names")
    parser.add_argument("--json", type=Path, help="where the samples go")
    parser.add_argument("--write-docs", action="store_true", help="write the tables and the chart")
    parser.add_argument("--render", type=Path, metavar="JSON", help="show a run made before")
    parser.add_argument("--tables", action="store_true", help="print every figure, not only goals")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (9 if options.full else 11)
    options.minutes = options.minutes or (90.0 if options.full else 8.5)
    size_name = "full" if options.full else "quick"
    options.json = options.json or RESULTS / f"{'foreign-' * options.foreign}{size_name}.json"
    options.peers = _chosen_peers(parser, options)
    options.workloads = _chosen_workloads(parser, options)
    return options


def _chosen_peers(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    if options.foreign:
        names = foreign.chosen(with_torch=options.torch)
        if options.peers is not None:
            names = [name for name in names if name in options.peers.split(",")]
        return names
    if options.peers in {None, "all"}:
        every = options.full or options.peers == "all"
        names = [
            name for name, peer in PEERS.items() if (peer.is_serious or every) and not peer.is_large
        ]
    else:
        names = options.peers.split(",")
    if options.before is not None:
        names.append(BEFORE.name)
    if options.torch:
        names += [name for name, peer in PEERS.items() if peer.is_large and name not in names]
    unknown = [name for name in names if name not in {*PEERS, BEFORE.name}]
    if unknown:
        parser.error(f"unknown peers: {', '.join(unknown)}")
    return names


def _chosen_workloads(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    table = FOREIGN if options.foreign else WORKLOADS
    if options.workloads is None:
        return [name for name, one in table.items() if one.size(is_full=options.full)]
    names: list[str] = options.workloads.split(",")
    unknown = [name for name in names if name not in table]
    if unknown:
        parser.error(f"unknown workloads: {', '.join(unknown)}")
    return names


def perform(options: argparse.Namespace) -> Run:
    """Measure, in a folder that is removed afterwards."""
    end = time.monotonic() + 60 * options.minutes
    if options.dir is not None:
        options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ztensor-bench-", dir=options.dir) as folder:
        harness = Harness(options, Path(folder), end)
        for warning in machine.warnings(Path(folder)):
            harness.run.warnings.append(warning)
            harness.say(f"warning: {warning}")
        with contextlib.ExitStack() as exits:
            harness.start_servers(options.peers, exits)
            table = FOREIGN if options.foreign else WORKLOADS
            harness.measure([table[name] for name in options.workloads])
        return harness.run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = parse_arguments(arguments)
    if options.render is not None:
        run = Run.from_json(options.render.read_text(encoding="utf-8"))
    else:
        if not hasattr(os, "fork") or not Path("/proc/self/clear_refs").exists():
            print("measuring takes Linux: processes are forked, memory is read from /proc")
            return 1
        run = perform(options)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(run.to_json(), encoding="utf-8")
    print(report.terminal(run, with_figures=options.tables or options.full))
    if options.render is None:
        print(f"\nAll samples: {options.json}")
    if options.write_docs:
        report.write_docs(run, DOCS)
        print(f"Written: {DOCS / 'benchmarks.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
