"""Run the tests of mutants, one after another, in a clone of the checkout: see `mutants`.

A worker collects the tests once. For each mutant it writes the mutation to disk and forks. The fork
gives its functions their mutated code, and runs the tests of the mutated line, the fast ones of
each file of tests first, until one fails. A mutation of code that runs at import, and tests that
the worker has not collected, need a process that imports all anew: it is a fork, too, of one that
has imported other people's packages but not ours.

A test that takes `LEAST` seconds of a processor longer than it did is run alone twice more; only if
it takes too long again is the mutant noticed. A mutant whose tests run for `SECONDS` survives. A
test that fails without the mutation, too, notices nothing.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import gc
import importlib
import inspect
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, NoReturn

import coverage
import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

FOLDER = Path("..").resolve()  # of a clone: see `mutants`
TIMES = FOLDER / "seconds.json"  # of each test that passes
SECONDS = 5.0  # of a processor, for the tests of one mutant in one process
CHOSEN = Path("build", "chosen.txt")  # in a clone: the tests of a new process
COLLECTION = 30.0  # seconds of a processor in which a new process collects tests
FILES = 12  # of tests that a new process collects at most
HEAVY = ("numpy", "hypothesis", "zstandard", "cbor2", "ml_dtypes", "h5py", "torch", "jax")
FIRST = 8  # tests that a new process imports before it imports all
STILL = 60.0  # seconds of the clock in which a process may wait for others
LEAST = 3.0  # seconds of a processor that a test may take longer than when it was measured
MEMORY = 8 << 30  # bytes that a mutant may allocate
CORE = [
    "unit/spec", "unit/io", "unit/formats", "unit/v2", "conformance", "corpus", "property",
    "attacks", "regressions", "unit/test_golden.py", "unit/test_handle.py",
    "unit/test_flipped_bits.py", "unit/test_guard.py", "unit/test_load_options.py",
    "unit/test_overwrite.py", "unit/test_threads.py", "unit/test_names.py", "unit/test_bools.py",
    "unit/test_iterating.py", "unit/test_errors.py", "unit/test_buffers.py",
    "unit/test_arguments.py", "unit/test_one_of_each.py",
]  # fmt: skip
# The tests that a worker collects for mutants of packages.
GROUPS = {
    ("spec", "io"): CORE,
    ("training",): ["unit/training", "unit/test_trainer.py"],
    ("distributed",): ["unit/distributed", "distributed", "unit/formats/test_dcp.py",
                       "unit/formats/test_dcp_columns.py", "unit/formats/test_dcp_edges.py",
                       "unit/formats/test_dcp_torch.py"],
}  # fmt: skip
PLUGINS = ("cacheprovider", "xdist", "pytest_cov", "terminal")
# A process that forks has imported Hypothesis, and a hang is for the worker to notice.
QUIET = ["-o", "timeout=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
NO_THREADS = "--ignore-glob=*test_jax*"  # JAX has threads, which no fork has: in new processes
MARKS = ["-m", "not slow and not fuzz and not interop"]


class Job(NamedTuple):
    """One mutation: its file in the repository, and cosmic-ray's name for it."""

    path: str
    operator: str
    arguments: dict[str, Any]
    occurrence: int
    line: int
    column: int


class Outcome(NamedTuple):
    """The outcome of a mutant - `noticed`, `too long` or `survived` - and its last test."""

    word: str
    test: str = ""


class Mutant(NamedTuple):
    """A mutated file, and the functions of this process that it changes, with their new code."""

    path: Path
    source: str
    mutated: str
    swaps: list[tuple[FunctionType, CodeType]]


class Measured:
    """Which tests run the lines of a file, the fast ones of each file of tests first."""

    def __init__(self) -> None:
        self.data = coverage.CoverageData(str(FOLDER / "lines"))
        self.data.read()
        self.seconds: dict[str, float] = json.loads(TIMES.read_text("utf-8"))

    @functools.cache  # noqa: B019 - one object in a process
    def lines(self, path: str) -> dict[int, list[str]]:
        """Return for each line of a file the contexts in which it runs."""
        names = [name for name in self.data.measured_files() if name.endswith(f"/{path}")]
        return self.data.contexts_by_lineno(names[0]) if names else {}

    def tests(self, path: str, chosen: set[int] | None) -> tuple[list[str], bool]:
        """Return the tests that run lines of a file in order, and whether an import runs them."""
        found = {
            context.rpartition("|")[0]
            for line, contexts in self.lines(path).items()
            if chosen is None or line in chosen
            for context in contexts
        }
        spent: dict[str, float] = {}  # by file of tests, so that all have their turn
        turns = []
        passing = [name for name in found if name in self.seconds]
        for name in sorted(passing, key=lambda name: (self.seconds[name], name)):
            file = name.partition("::")[0]
            spent[file] = spent.get(file, 0.0) + self.seconds[name]
            turns.append((spent[file], name))
        return [name for _, name in sorted(turns)], "" in found


def statement(source: str, line: int) -> set[int]:
    """Return the lines of the statement at a line, without the statements in it."""
    lines = {line}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno or 0
            if line <= last:
                lines |= set(range(node.lineno, last + 1))
    return lines


def work(number: int, workers: int) -> int:
    """Run every job of a worker that has no outcome yet."""
    jobs = [Job(*job) for job in json.loads((FOLDER / "jobs.json").read_text("utf-8"))]
    done = {index for index, _ in outcomes(FOLDER)}
    code = 0
    for packages, folders in GROUPS.items():
        mine = {
            index: job
            for index, job in enumerate(jobs)
            if job.path.split("/")[2] in packages and index % workers == number
            if index not in done
        }
        child = os.fork() if mine else 0  # one session of pytest in a process
        if mine and not child:
            tests = [f"tests/{path}" for path in folders if Path("tests", path).exists()]
            plugin = Worker(mine, FOLDER / f"outcomes-{number}.jsonl", serve())
            os._exit(session([*tests, NO_THREADS], plugin))
        elif mine:
            code = max(code, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return code


def serve() -> socket.socket:
    """Start a process that imports the packages of others, and forks to run tests afresh.

    It is sent a pipe; the tests are in `CHOSEN`. It answers with the status of its child.
    """
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    while True:
        _, writers, _, _ = socket.recv_fds(theirs, 1, 1)
        if not writers:
            os._exit(0)
        child = os.fork()
        if not child:
            theirs.close()
            run_alone(writers[0])
        os.close(writers[0])
        theirs.send(struct.pack("i", os.waitpid(child, 0)[1]))


def session(tests: list[str], plugin: object) -> int:
    """Collect tests, and let a plugin run them."""
    without = [word for name in PLUGINS for word in ("-p", f"no:{name}")]
    kept = f"--basetemp={Path.cwd() / 'build' / 'temporary'}"
    Path("build").mkdir(exist_ok=True)
    return int(pytest.main([*without, *MARKS, *QUIET, kept, *tests], plugins=[plugin]))


class Worker:
    """Plugin of pytest: tries the mutants in forks of the process that collected the tests."""

    def __init__(self, jobs: dict[int, Job], results: Path, server: socket.socket) -> None:
        self.jobs, self.results, self.server = jobs, results, server
        self.measured = Measured()
        self.sound: dict[str, bool] = {}  # by test: whether it passes here without a mutation
        self.noticed: dict[str, list[str]] = {}  # by file: the tests that noticed a mutant of it
        self.moment = int(time.time())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant, and append its outcome to the results."""
        self.items = {item.nodeid: item for item in session.items}
        self.functions: dict[str, list[FunctionType]] = {}
        gc.unfreeze()
        for value in gc.get_objects():
            if type(value) is FunctionType:
                self.functions.setdefault(value.__code__.co_filename, []).append(value)
        gc.freeze()
        for index, job in self.jobs.items():
            started = time.monotonic()
            path = Path(job.path)
            source = path.read_text("utf-8")
            operator = get_operator(job.operator)(**job.arguments)
            mutated = mutate_code(source, operator, job.occurrence)
            outcome = self.outcome(job, source, mutated)
            if outcome.word == "noticed":
                self.noticed.setdefault(job.path, []).append(outcome.test)
            difference = difflib.unified_diff(
                source.splitlines(), mutated.splitlines(), job.path, job.path, "", "", 2, ""
            )
            result = {
                "index": index, "outcome": outcome.word, "test": outcome.test,
                "seconds": round(time.monotonic() - started, 1), "diff": "\n".join(difference),
            }  # fmt: skip
            with self.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        return True

    def outcome(self, job: Job, source: str, mutated: str) -> Outcome:
        """Try a mutant."""
        path = Path(job.path).resolve()
        pairs: list[tuple[CodeType, CodeType]] = []
        try:
            at_import = changed(code_of(source, path), code_of(mutated, path), pairs)
        except SyntaxError:
            return Outcome("noticed", "the compiler")
        loaded = self.functions.get(str(path), [])
        swaps = [(one, new) for old, new in pairs for one in loaded if one.__code__ == old]
        mutant = Mutant(path, source, mutated, swaps)
        lines = None if at_import else statement(source, job.line)
        names, imported = self.measured.tests(job.path, lines)
        if not names:  # only an import runs it, or other processes of tests
            names, imported = self.measured.tests(job.path, None)[0], True
        if not names:
            return Outcome("survived", "no test runs it")
        first = [name for name in self.noticed.get(job.path, ()) if name in set(names)]
        names = list(dict.fromkeys([*first, *names]))
        here = [name for name in names if name in self.items]
        if here and (swaps or not loaded):
            outcome = self.search(here, mutant, is_new=False)
            # It may fail because an import ran the old code: then it passes alone.
            if imported and outcome.word == "noticed":
                outcome = self.search([outcome.test], mutant, is_new=True)
            if not imported or outcome.word != "survived":
                return outcome
        # A new process imports its tests: first a few of the folder that is closest to the file.
        folder, _, file = job.path.removeprefix("src/ztensor/").rpartition("/")
        close = f"tests/unit/{folder}/test_{file}"
        names.sort(key=lambda name: -len(os.path.commonprefix([name, close])))  # noqa: RUF071
        files = list(dict.fromkeys(name.partition("::")[0] for name in names))[:FILES]
        names = [name for name in names if name.partition("::")[0] in files]
        outcome = self.search(names[:FIRST], mutant, is_new=True)
        if outcome.word == "survived" and names[FIRST:]:
            outcome = self.search(names[FIRST:], mutant, is_new=True)
        return outcome

    def search(self, names: list[str], mutant: Mutant, *, is_new: bool) -> Outcome:
        """Run tests until one fails that passes without the mutation."""
        while True:
            names = [name for name in names if self.sound.get(name, True)]
            outcome = self.attempt(names, mutant, is_new=is_new)
            test = outcome.test
            if outcome.word == "too long" and test in names:
                more = [self.attempt([test], mutant, is_new=is_new).word for _ in range(2)]
                if more != ["too long"] * 2:
                    names = names[names.index(test) + 1 :]
                    continue
            if outcome.word == "survived" or self.sound.get(test):
                return outcome
            # A test that fails without the mutation, too, notices nothing.
            alone = [test] if test in names else names[:1]
            again = self.attempt(alone, mutant._replace(mutated=""), is_new=is_new)
            self.sound[test] = again.word == "survived"
            if not self.sound[test] and test not in names:
                raise RuntimeError(f"without a mutation, {alone} cannot be collected: see `serve`")

    def attempt(self, names: list[str], mutant: Mutant, *, is_new: bool) -> Outcome:
        """Run tests in a fork, or in a new process, until one fails or takes too long."""
        if not names:
            return Outcome("survived")
        with self.on_disk(mutant):
            reader, writer = os.pipe()
            if is_new:
                CHOSEN.write_text("\n".join(names), "utf-8")
                socket.send_fds(self.server, [b"+"], [writer])
            elif not quiet_fork():
                for function, code in mutant.swaps if mutant.mutated else ():
                    function.__code__ = code
                limit_this_process(writer)
                run_tests([self.items[name] for name in names], writer, self.measured.seconds)
            os.close(writer)
            child, word, test = listen(reader)
            os.close(reader)
            if word != "ended":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
            if is_new:
                (status,) = struct.unpack("i", self.server.recv(4))
            else:
                _, status = os.waitpid(child, 0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        if word == "ended":  # without a last word
            is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
            word = "too long" if is_late else "noticed"
        return Outcome(word, test)

    @contextlib.contextmanager
    def on_disk(self, mutant: Mutant) -> Iterator[None]:
        """Hold a mutation in the clone's file, under times that no other bytecode has."""
        try:
            self.write(mutant.path, mutant.mutated or mutant.source)
            yield
        finally:
            self.write(mutant.path, mutant.source)

    def write(self, path: Path, text: str) -> None:
        """Write a file, a second after any before."""
        path.write_text(text, "utf-8")
        self.moment += 1
        os.utime(path, (self.moment, self.moment))


def code_of(source: str, path: Path) -> CodeType:
    """Compile a file."""
    return compile(source, str(path), "exec", dont_inherit=True)


def changed(before: CodeType, after: CodeType, pairs: list[tuple[CodeType, CodeType]]) -> bool:
    """Collect the functions whose code differs; return whether other code does, too."""
    parts = [
        [value for value in code.co_consts if isinstance(value, CodeType)]
        for code in (before, after)
    ]
    own = [
        code.replace(
            co_consts=tuple(v for v in code.co_consts if not isinstance(v, CodeType)),
            co_linetable=b"",  # ends of the statements inside
        )
        for code in (before, after)
    ]
    at_import = own[0] != own[1] or len(parts[0]) != len(parts[1])
    for old, new in zip(*parts, strict=False):
        if old.co_flags & inspect.CO_OPTIMIZED:
            if old != new:
                pairs.append((old, new))
        else:
            at_import |= changed(old, new, pairs)
    return at_import


def quiet_fork() -> int:
    """Fork without JAX's warning that its threads are not in the child: no test there has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def limit_this_process(writer: int) -> None:
    """Make a process one that can be ended with its children, and say which it is."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    os.write(writer, f"{os.getpid()}\n".encode())


def run_tests(items: list[pytest.Item], writer: int, seconds: dict[str, float]) -> NoReturn:
    """Run tests until one fails, and write the name of each before it starts."""
    failed = True
    try:
        plugin = Failures()
        items[0].config.pluginmanager.register(plugin)
        limit = time.process_time() + SECONDS
        for item, after in zip(items, [*items[1:], None], strict=True):
            os.write(writer, f"{item.nodeid}\n".encode())
            signal.setitimer(signal.ITIMER_PROF, LEAST + seconds.get(item.nodeid, LEAST))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if plugin.failed or time.process_time() > limit:
                break
        failed = plugin.failed
    finally:
        os.write(writer, b"!noticed\n" if failed else b"!survived\n")
        os._exit(0)


class Failures:
    """Plugin of pytest: notes whether a test failed."""

    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase that failed."""
        self.failed |= report.failed


def run_alone(writer: int) -> NoReturn:
    """Collect the chosen tests, and run them; a collection that fails is a test that does."""
    with open(os.devnull, "r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    limit_this_process(writer)
    signal.setitimer(signal.ITIMER_PROF, COLLECTION)
    os.write(writer, b"the import\n")
    names = CHOSEN.read_text("utf-8").split("\n")
    with contextlib.suppress(BaseException):
        session([*dict.fromkeys(name.split("::")[0] for name in names)], Alone(names, writer))
    os.write(writer, b"!noticed\n")
    os._exit(0)


class Alone:
    """Plugin of pytest: runs chosen tests in their order, in the process that collected them."""

    def __init__(self, names: list[str], writer: int) -> None:
        self.names, self.writer = names, writer

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them, if all files could be imported."""
        items = {item.nodeid: item for item in session.items}
        chosen = [items[name] for name in self.names if name in items]
        if not session.testsfailed and chosen:
            run_tests(chosen, self.writer, json.loads(TIMES.read_text("utf-8")))
        return True


def ticks(child: str) -> int:
    """Return the processor time of a process and its children."""
    fields = Path(f"/proc/{child}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def listen(reader: int) -> tuple[int, str, str]:
    """Follow a process of tests; return its id, its last word and its last test."""
    text, spent = b"", -1
    while not text.endswith((b"!survived\n", b"!noticed\n")):
        ready, _, _ = select.select([reader], [], [], STILL)
        more = os.read(reader, 1 << 16) if ready else b""
        if not more:
            child, *names, _ = text.decode().split("\n")
            before, spent = spent, -1 if ready else ticks(child)
            if before == spent:
                return int(child), "ended" if ready else "too long", names[-1] if names else ""
        text += more
    child, *names, last, _ = text.decode().split("\n")
    return int(child), last[1:], names[-1]


def outcomes(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the outcomes of all workers, by the place of their job in the sample."""
    for file in sorted(folder.glob("outcomes-*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            result = json.loads(line)
            yield result["index"], result


if __name__ == "__main__":
    sys.exit(work(int(sys.argv[2]), int(sys.argv[1])))
