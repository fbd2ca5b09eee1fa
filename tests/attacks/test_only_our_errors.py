"""All that users do with files, and every verb, on hostile files and without memory or disk.

The outcome is a result or an error of the family. `Reason.UNFORESEEN` is not allowed: it means that
no rule names the defect of the file.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import io
import itertools
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.extent import IS_FULL
from ztensor import v2
from ztensor.errors import Reason, ZTensorError
from ztensor.testing.builder_2 import one_object

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
scipy_sparse = pytest.importorskip("scipy.sparse")
pytest.importorskip("dask.array")
pytest.importorskip("cryptography")

pytestmark = pytest.mark.filterwarnings("ignore")  # what libraries say of odd values

F32 = np.arange(24, dtype=np.float32).reshape(4, 6)
FOREIGN = Path(__file__).parents[1] / "corpus" / "foreign" / "accept"


KEY = b"""\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAAAAAAAAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAGhRANCAARrF9Hy4SxCR/i85uVjpEDydwN9gS3r
M6D0oTlF2JjClk/jQuL+Gn+bjufrSnwPnhYrzjNXazFezsu2QGg3v1H1
-----END PRIVATE KEY-----
"""  # the number 1: it is of no use


# --- Files --------------------------------------------------------------------------------------


def tensors() -> dict[str, Any]:
    codes = np.zeros((8, 8), np.int8)
    return {
        "w": F32,
        "i": np.arange(6, dtype=np.int64),
        "scalar": np.array(1.5),
        "empty": np.zeros((0, 4), np.float32),
        "csr": ztensor.Tensor.from_scipy(scipy_sparse.csr_array(np.eye(4, dtype=np.float32))),
        "coo": ztensor.Tensor.from_scipy(scipy_sparse.coo_array(np.eye(4, dtype=np.float32))),
        "quantized": ztensor.Tensor.from_int8(codes, np.ones(8, np.float32)),
    }


def made_zt(path: Path, version: str, *, compression: bool) -> None:
    given = tensors()
    if version == "0.1.0":
        given = {name: given[name] for name in ("w", "i", "scalar", "empty")}
    attributes = None if version == "0.1.0" else {"a": "b"}
    ztensor.numpy.save_file(given, path, attributes, compression, version=version)


def made_keras(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        archive.writestr("config.json", '{"class_name": "Sequential"}')
        archive.writestr("model.weights.h5", (FOREIGN / "hdf5/earliest.h5").read_bytes())


SAMPLES = {
    "a.safetensors": "safetensors/small.safetensors",
    "a.npy": "npz/complex.npy",
    "a.npz": "npz/small.npz",
    "a.gguf": "gguf/quantized.gguf",
    "a.pt": "pt/checkpoint.pt",
    "old.pt": "pt/legacy.pt",
    "a.h5": "hdf5/earliest.h5",
    "latest.h5": "hdf5/latest.h5",
    "a.onnx": "onnx/typed.onnx",
}
MAKERS: dict[str, Callable[[Path], object]] = {
    "v12.zt": functools.partial(made_zt, version="1.2.0", compression=False),
    "plain.zt": lambda path: ztensor.numpy.save_file({"w": F32, "v": F32[0]}, path),
    "v12z.zt": functools.partial(made_zt, version="1.2.0", compression=True),
    "v11.zt": functools.partial(made_zt, version="1.1.0", compression=False),
    "v01.zt": functools.partial(made_zt, version="0.1.0", compression=True),
    "v2.zt": lambda path: path.write_bytes(one_object()),
    "a.keras": made_keras,
    **{
        name: functools.partial(shutil.copyfile, FOREIGN / sample)
        for name, sample in SAMPLES.items()
    },
}
# The suffix of another format: its parser then gets the bytes.
WRONG = {
    ".zt": ".npz", ".safetensors": ".pt", ".npy": ".gguf", ".npz": ".keras", ".gguf": ".zt",
    ".pt": ".npz", ".h5": ".safetensors", ".keras": ".h5", ".onnx": ".npy",
}  # fmt: skip


class Files:
    """Samples of every format, and places to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counter = itertools.count()
        self.bytes: dict[str, bytes] = {}
        made = folder / "made"
        made.mkdir()
        for name, make in MAKERS.items():
            make(made / name)
            self.bytes[name] = (made / name).read_bytes()
        self.sample = made / "plain.zt"
        self.model = torch.nn.Linear(6, 4)

    def out(self, suffix: str = ".zt") -> Path:
        return self.folder / f"{next(self.counter)}{suffix}"

    def zt(self, name: str = "v12.zt") -> Path:
        """Return the path of a new copy of a sample."""
        path = self.out(Path(name).suffix)
        path.write_bytes(self.bytes[name])
        return path

    def new_folder(self) -> Path:
        folder = self.out("")
        folder.mkdir()
        return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("only_our_errors"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let odd relative paths name nothing of worth."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", "2")


# --- Judging ------------------------------------------------------------------------------------


def escape_of(call: Callable[[], Any], *, is_right: bool = False) -> str | None:
    """Return a forbidden outcome of a call as text, else None; a right call must not be refused."""
    try:
        used(call())
    except ZTensorError as error:
        if error.reason is Reason.UNFORESEEN:
            return f"{error} <- {error.__cause__!r}"
        if not str(error).translate({9: None, 10: None}).isprintable():  # torch's are of many lines
            return f"unfit to print: {str(error)[:300]!a}"
        return f"refused: {error}" if is_right else None
    except Exception as error:  # noqa: BLE001  # the search is for any
        return f"{type(error).__name__}: {error}"[:300]
    return None


def used(result: Any) -> None:
    """Use the result of a call: iterate, print and close it."""
    if isinstance(result, Iterator):
        collections.deque(itertools.islice(result, 100), maxlen=0)
    repr(result)
    close = getattr(result, "abort", None) or getattr(result, "close", None)
    if isinstance(result, (ztensor.Reader, ztensor.Writer, ztensor.safe_open)) and close:
        close()


def tree(files: Files) -> Path:
    path = files.out()
    ztensor.save_tree({"w": F32, "n": [1, 2.0, ("x", None)], "d": {1: {2, 3}}}, path)
    return path


# One in so many variants of each file is tried; all of them in the full form.
STRIDE = 1 if IS_FULL else 24


# --- Hostile files ------------------------------------------------------------------------------


def variants(name: str, data: bytes) -> Iterator[bytes]:
    """Yield a file, and the file cut, with bytes flipped, with lengths that are absurd."""
    yield data
    for cut in (0, 1, 8, len(data) // 3, len(data) - 20, len(data) - 1):
        yield data[: max(cut, 0)]
    draw = random.Random(name)
    for count in (1, 1, 1, 4, 16, 64):
        changed = bytearray(data)
        # Formats keep their structure in heads and tails.
        near = draw.choice((range(len(data)), range(min(64, len(data))), range(len(data))[-64:]))
        for _ in range(count):
            changed[draw.choice(near)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        yield bytes(changed)
    for offset in (0, 4, 8, 16, len(data) // 2, len(data) - 16):
        yield data[:offset] + b"\xff" * 8 + data[offset + 8 :]
    yield data + data
    yield bytes(len(data))


def hostile(
    files: Files, use: str, sample: str, *, is_misnamed: bool = False
) -> Iterator[tuple[str, Path]]:
    """Write one in `STRIDE` variants of a sample; yield names and paths.

    Args:
        files: has the samples, and the folder to write to.
        use: decides which variant is the first.
        sample: the name of the sample.
        is_misnamed: let every second variant have the suffix of another format.
    """
    first = random.Random(f"{use} {sample}").randrange(STRIDE)
    suffix = Path(sample).suffix
    every = enumerate(variants(sample, files.bytes[sample]))
    for index, data in itertools.islice(every, first, None, STRIDE):
        path = files.out(WRONG[suffix] if is_misnamed and index % 2 else suffix)
        path.write_bytes(data)
        yield f"{sample}, variant {index}", path


def require_none(escapes: dict[str, str | None]) -> None:
    lines = [f"{case}: {escape}" for case, escape in escapes.items() if escape is not None]
    assert not lines, "\n".join(lines)


def with_everything(read: Callable[[Any], Any]) -> Callable[[Files, Path], Any]:
    return lambda _files, path: read(path)


def seen(path: Path) -> None:
    with ztensor.open(path) as reader:
        reader.verify(threads=1)
        for name in reader:
            for look in (reader.metadata, reader.read, reader.read_torch, reader.read_jax):
                with contextlib.suppress(ztensor.FormatError, ztensor.UsageError):
                    look(name)
            with contextlib.suppress(ztensor.FormatError, ztensor.UsageError):
                reader.get_slice(name)[:1]


def handled(framework: str) -> Callable[[Path], None]:
    def look(path: Path) -> None:
        with ztensor.safe_open(path, framework) as handle:
            handle.get_tensors()
            handle.metadata()

    return look


def appended(path: Path) -> None:
    with ztensor.Editor(path, durable=False) as editor:
        editor.write("new", F32)


def linked(root: Path, path: Path) -> None:
    with v2.Writer(root, canonical=False) as writer:
        writer.add_shard("s", path)
        writer.link("s")
    ztensor.open(root, resolver=lambda _: path).close()


# Every use of a file by its path; `Files` gives paths for outputs.
OPERATIONS: dict[str, Callable[[Files, Path], Any]] = {
    "open": with_everything(seen),
    "recover": lambda _, path: ztensor.open(path, recover=True).close(),
    "bytes": lambda _, path: ztensor.numpy.load(path.read_bytes()),
    "numpy": with_everything(ztensor.numpy.load_file),
    "torch": lambda _, path: ztensor.torch.load_file(path),
    "torch model": lambda f, path: ztensor.torch.load_model(f.model, path, strict=False),
    "jax": lambda _, path: ztensor.jax.load_file(path),
    "jax abstract": lambda _, path: ztensor.jax.load_abstract(path),
    "handle np": with_everything(handled("np")),
    "handle pt": with_everything(handled("pt")),
    "handle jax": with_everything(handled("jax")),
    "tree": with_everything(ztensor.load_tree),
    "stats": with_everything(ztensor.stats),
    "examine": with_everything(lambda path: ztensor.examine(path).as_json()),
    "examine two": lambda f, path: ztensor.examine(path, f.sample).as_json(),
    "plot": with_everything(ztensor.plot),
    "hash": with_everything(ztensor.content_hash),
    "digest": with_everything(ztensor.insight.content_digest),
    "canonical": with_everything(ztensor.insight.canonical_problems),
    "diff": lambda f, path: ztensor.diff(path, f.sample),
    "convert": lambda f, path: ztensor.convert(path, f.out(), durable=False),
    "cast": lambda f, path: ztensor.convert(
        path, f.out(), durable=False, dtype="float16", dequantize=True
    ),
    "export": lambda f, path: ztensor.convert(path, f.out(".npz"), durable=False),
    "export h5": lambda f, path: ztensor.convert(path, f.out(".h5"), durable=False),
    "migrate": lambda f, path: ztensor.migrate(path, f.out(), durable=False),
    "merge": lambda f, path: ztensor.merge([path, f.sample], f.out(), on_conflict="last"),
    "split": lambda f, path: ztensor.split(path, f.new_folder(), max_shard_size=64, durable=False),
    "divide": lambda f, path: ztensor.split(
        path, f.new_folder(), max_shard_size=1 << 20, durable=False, root=True
    ),
    "link": lambda f, path: linked(f.out(), path),
    "append": with_everything(appended),
    "replace": lambda _, path: ztensor.edit.replace_tensor(path, "w", F32, durable=False),
    "remove": lambda _, path: ztensor.edit.remove_tensors(path, names=["w"], durable=False),
    "rename": lambda _, path: ztensor.edit.rename_tensors(path, {"w": "u"}, durable=False),
    "set": lambda _, path: ztensor.edit.set_attributes(path, {"k": 1}, durable=False),
    "compact": lambda _, path: ztensor.compact(path, durable=False),
    "repair": lambda f, path: ztensor.repair(path, write=f.out(), durable=False),
    "sign": lambda f, path: ztensor.signing.sign(path, KEY, signature=f.out(), durable=False),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("sample", MAKERS)
def test_hostile_files(files: Files, operation: str, sample: str) -> None:
    """Files of every format that are cut, flipped or grown, under their own and a wrong name."""
    do = OPERATIONS[operation]
    require_none(
        {
            case: escape_of(functools.partial(do, files, path))
            for case, path in hostile(files, operation, sample, is_misnamed=True)
        }
    )


def test_every_operation_on_a_right_file(files: Files) -> None:
    """The operations above succeed on a valid file."""
    for operation, do in OPERATIONS.items():
        if operation == "tree":
            sample = tree(files)
        elif operation in ("digest", "link"):  # only files of 2.x have one
            sample = files.out()
            ztensor.numpy.save_file({"v": np.arange(3)}, sample, version="2.1")
        else:
            sample = files.zt("v12.zt" if operation in ("bytes", "handle np") else "plain.zt")
        escape = escape_of(functools.partial(do, files, sample), is_right=True)
        require_none({operation: escape})


# --- The command line ---------------------------------------------------------------------------

# Each verb as it is called, with what stands for the file, another file, and places to write to.
VERBS: dict[str, list[str]] = {
    "ls": ["FILE"],
    "info": ["FILE"],
    "show": ["FILE", "w"],
    "stats": ["FILE"],
    "plot": ["FILE"],
    "diff": ["FILE", "OTHER"],
    "report": ["FILE", "-o", "OUT.html"],
    "view": ["FILE", "--no-browser", "--seconds", "0.01"],
    "verify": ["FILE"],
    "hash": ["FILE"],
    "ckpt": ["verify", "FILE"],
    "conformance": ["FILE"],
    "convert": ["FILE", "OUT"],
    "merge": ["FILE", "OTHER", "-o", "OUT"],
    "split": ["FILE", "--max-shard-size", "64B"],
    "append": ["FILE", "OTHER"],
    "replace": ["FILE", "w", "OTHER"],
    "rm": ["FILE", "w"],
    "mv": ["FILE", "w", "v"],
    "set": ["FILE", "key=value"],
    "compact": ["FILE"],
    "repair": ["FILE"],
    "sign": ["FILE", "--key", "KEY", "-o", "OUT"],
    "delta": ["make", "FILE", "OTHER", "-o", "OUT"],
    "completions": ["bash"],
}


def ended(arguments: list[str]) -> str | None:
    """Run the command in this process; return a forbidden outcome as text, else None."""
    from ztensor.cli.exits import ExitCode
    from ztensor.cli.main import main

    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # noqa: BLE001  # the search is for any
        return f"{type(error).__name__}: {error}"
    err.flush()
    output = err.buffer.getvalue().decode("utf-8", "replace")
    if code not in set(ExitCode) or "Traceback" in output or "bug in ztensor" in output:
        return f"code {code!r}: {output[-600:]}"
    return None


def call_of(files: Files, verb: str, file: Path) -> list[str]:
    places = {"FILE": str(file), "OTHER": str(files.zt("a.npy")), "OUT": str(files.out())}
    if verb == "sign":
        places["KEY"] = str(files.out())
        Path(places["KEY"]).write_bytes(KEY)
    return [verb, *(places.get(word, word.replace("OUT", places["OUT"])) for word in VERBS[verb])]


def test_every_verb_has_a_case() -> None:
    """No verb is left out."""
    from ztensor.cli.main import VERBS as OF_COMMAND

    assert {verb for group in OF_COMMAND.values() for verb in group} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_with_hostile_files(files: Files, verb: str) -> None:
    """Hostile files of every format, and paths that are none, for every verb of the command."""
    loop = files.out()
    loop.symlink_to(loop)
    nowhere = files.out("") / "no" / "such.zt"
    paths = (nowhere, files.folder, loop, files.zt() / "below.zt", Path("x" * 5000), Path(""))
    calls = {str(path)[:80]: call_of(files, verb, path) for path in paths}
    for words in ([], ["--no-such"], ["\ud800"], ["", "", "", ""], ["x" * 5000] * 9):
        calls[repr(words)[:80]] = [verb, *words]
    for sample in MAKERS:
        for case, path in hostile(files, verb, sample):
            calls[case] = call_of(files, verb, path)
    require_none({case: ended(arguments) for case, arguments in calls.items()})


# --- Nothing left: memory, the stack, the disk --------------------------------------------------


def output_of(program: str, *arguments: object) -> str:
    """Run a program that prints what became of each call; none may have escaped."""
    # With more arenas each thread has address space in store, and nothing ever runs out.
    one_arena = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=one_arena,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "ESCAPED" not in ran.stdout, ran.stdout
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]
    return ran.stdout


STARVED = """
import resource, sys
import numpy as np
import ztensor, ztensor.numpy, ztensor.torch
from ztensor.errors import LimitError

def attempts(path):
    def each(reader):
        for name in reader:
            reader.read(name, copy=True)
    def opened(**how):
        with ztensor.open(path, **how) as reader:
            each(reader)
    yield "read", opened
    yield "unmapped", lambda: opened(mmap=False)
    yield "numpy", lambda: ztensor.numpy.load_file(path, copy=True)
    yield "torch", lambda: ztensor.torch.load_file(path, copy=True)
    yield "bytes", lambda: ztensor.numpy.load(open(path, "rb"))
    yield "verify", lambda: ztensor.open(path).verify(threads=2)
    yield "stats", lambda: ztensor.stats(path, threads=2)
    yield "convert", lambda: ztensor.convert(path, out, compression=1, threads=2, durable=False)
    yield "compact", lambda: ztensor.compact(out, durable=False)

out = sys.argv[2] + ".out.zt"
own = ("stats", "convert", "compact")
for path in sys.argv[4:]:  # all that is loaded late is loaded
    for what, do in attempts(path):
        do()
for mebibytes in map(int, sys.argv[1].split()):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (mebibytes << 20), resource.RLIM_INFINITY))
    for path in sys.argv[3].split(":"):
        for what, do in attempts(path):
            try:
                do()
                print(mebibytes, "done", what, path)
            except LimitError as error:
                print(mebibytes, "refused", what, path, error.reason)
            except MemoryError:  # of the work itself, and not of reading the file
                print(mebibytes, "refused" if what in own else "ESCAPED", what, path)
            except BaseException as error:
                wrong = type(error).__name__, error, repr(error.__cause__)
                print(mebibytes, "ESCAPED", what, path, *wrong)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


def large(files: Files) -> list[Path]:
    """Write files of 16 MB, of several formats."""
    values = np.arange(4 << 20, dtype=np.float32)
    folder = files.new_folder()
    ztensor.numpy.save_file({"w": values}, folder / "raw.zt", durable=False)
    ztensor.numpy.save_file({"w": values}, folder / "zstd.zt", None, 1, durable=False)
    for suffix in ("npz", "gguf"):
        ztensor.convert(folder / "raw.zt", folder / f"a.{suffix}", durable=False, check=False)
    torch.save({"w": torch.from_numpy(values)}, folder / "a.pt")
    return sorted(folder.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is Linux's")
def test_memory_that_runs_out(files: Files) -> None:
    """Files of 16 MB read, checked and converted by a process that may have little memory more."""
    paths = ":".join(map(str, large(files)))
    small = [str(files.zt(name)) for name in ("v12.zt", "v12z.zt", "a.npz", "a.pt", "a.gguf")]
    output = output_of(STARVED, "1 8 20", files.out(), paths, *small)
    for mebibytes in (1, 8, 20):
        assert f"{mebibytes} refused" in output, output


@pytest.mark.slow
def test_a_stack_that_runs_out(files: Files) -> None:
    """Calls made where only so many frames are left, for every number of them."""

    def deep(calls: int, do: Callable[[], Any]) -> Any:
        return do() if calls == 0 else deep(calls - 1, do)

    limit = sys.getrecursionlimit()
    ended_as = collections.Counter[str]()
    for operation in ("open", "numpy", "handle np", "stats", "diff", "convert", "append"):
        OPERATIONS[operation](files, files.zt("plain.zt"))  # all that is loaded late is loaded
        for calls in range(140, 199, 1 if STRIDE == 1 else 3):
            path = files.zt("plain.zt")
            do = functools.partial(OPERATIONS[operation], files, path)
            try:
                sys.setrecursionlimit(len(inspect.stack(0)) + 200)
                deep(calls, do)
                ended_as["done"] += 1
            except ztensor.LimitError as error:
                ended_as[str(error.reason)] += 1
            except RecursionError:
                ended_as["no frame left"] += 1
            finally:
                sys.setrecursionlimit(limit)
    assert set(ended_as) <= {"done", "limit_stack", "no frame left"}, ended_as
    assert min(ended_as["done"], ended_as["limit_stack"]) > 10, ended_as


FULL = """
import functools, resource, sys
import numpy as np
import ztensor, ztensor.numpy, ztensor.torch, ztensor.jax, torch

folder, small = sys.argv[1:]
ones = {"w": np.ones(1 << 18, np.float32)}
ztensor.numpy.save_file(ones, folder + "/large.zt")

def streamed():
    with ztensor.Writer(folder + "/stream.zt") as writer:
        with writer.stream("w", (1 << 18,), "float32") as sink:
            sink.write(ones["w"])

writers = {
    "save": lambda: ztensor.numpy.save_file(ones, folder + "/a.zt"),
    "shards": lambda: ztensor.numpy.save_file(
        ones | {"v": ones["w"] + 1}, folder + "/s.zt", max_shard_size=1 << 20
    ),
    "torch": lambda: ztensor.torch.save_file({"w": torch.ones(1 << 18)}, folder + "/b.zt"),
    "jax": lambda: ztensor.jax.save_file(ones, folder + "/c.zt"),
    "stream": streamed,
    "replace": lambda: ztensor.edit.replace_tensor(small, "w", ones["w"]),
    "merge": lambda: ztensor.merge([folder + "/large.zt"], folder + "/d.zt"),
    "compact": lambda: ztensor.compact(folder + "/large.zt"),
    "split": lambda: ztensor.split(folder + "/large.zt", max_shard_size=1 << 20),
    "migrate": lambda: ztensor.migrate(folder + "/large.zt", version="1.1.0"),
    "repair": lambda: ztensor.repair(folder + "/large.zt", write=folder + "/e.zt"),
    "picture": lambda: ztensor.plot(folder + "/large.zt").save(folder + "/p.svg"),
    "report": lambda: ztensor.report(folder + "/large.zt", folder + "/p.html"),
} | {
    f"convert {suffix}": functools.partial(
        ztensor.convert, folder + "/large.zt", folder + "/x." + suffix
    )
    for suffix in ("zt", "npz", "npy", "safetensors", "gguf", "h5", "pt")
}
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
for name, do in writers.items():
    try:
        do()
        print("done", name)
    except ztensor.SourceError as error:
        print("refused", name, error.reason)
    except ztensor.UsageError as error:
        print("usage", name, error)
    except BaseException as error:
        print("ESCAPED", name, type(error).__name__, error, repr(error.__cause__))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_FSIZE is not everywhere")
def test_a_disk_that_runs_out(files: Files) -> None:
    """Every writer in a process with at most 2 KiB per file."""
    folder = files.new_folder()
    output = output_of(FULL, folder, files.zt("plain.zt"))
    assert output.count("refused") >= 14, output
    for target in ("/dev/full", "/dev/null", str(folder), str(folder / "no" / "such.zt")):
        with pytest.raises((ztensor.SourceError, ztensor.UsageError)):
            ztensor.numpy.save_file({"w": F32}, target)
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(ztensor.SourceError):
        ztensor.numpy.save_file({"w": F32}, full)
