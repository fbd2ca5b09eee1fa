"""The targets of fuzzing: one for each format, and for each parser that is worth many cases.

A target has files to start from, a way to list one (fast, most cases) and a way to do with one all
that users do (slow, some of them). Both let whatever goes wrong escape, and both tell whether the
bytes were taken.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import delta_files
import dialects
import edits
import foreign
import mutation
import pieces
import second
from pieces import Pieces

import deltas
import planes
import ztensor
from ztensor.errors import NotZTensorError, SourceNotFoundError
from ztensor.ext import FileObjects
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.formats.pt.pickled import Vocabulary
from ztensor.formats.pt.values import storage_of
from ztensor.formats.pt.vocabulary import CALLS
from ztensor.io.formats import project
from ztensor.io.reading.recovery import search
from ztensor.io.shards.index import parse_index
from ztensor.io.source.memory import MemorySource
from ztensor.limits import Budget
from ztensor.numpy import save
from ztensor.spec.container import v1
from ztensor.spec.container.framing import Container
from ztensor.spec.container.v2 import schema as v2
from ztensor.spec.encoding.base import Held
from ztensor.spec.encoding.zstd.codec import Zstd
from ztensor.spec.wire import cbor
from ztensor.testing.builder import VERSIONS, build, item, sealed, zstd_frame
from ztensor.testing.promise import PromiseBroken, exercise

HERE = Path(__file__).resolve().parent
KEPT = HERE / "corpus"
sys.path.insert(0, str(HERE.parent))  # of which `tests` is a part
# The floor of the budget is low, so that a few kilobytes that take too much show.
LIMITS = ztensor.Limits(decoded_bytes=16 << 20, cost_floor=1 << 20)
BLOCK = 128  # cases that vary one file
WHOLE = 43  # every so many of them get all that users do, as the file itself does
GROWN = 32  # every so many blocks a file is grown
GROWN_BYTES = range(4 << 10, 64 << 10)  # how long it is then
# The formats of `make suite SUITE=budget` that have the worst known files of a target.
SHAPES = {
    "zt-0.1": ["zt 0.1"],
    "zt-1.0": ["zt 1.0"],
    "zt-1.1": ["zt 1.2"],
    "zt-1.2": ["zt 1.2", "zt columns"],
    "columns": ["zt 1.2", "zt columns"],
    "zt-2": ["zt 2"],
    "kinds-2": ["zt 2"],
    "pt": ["pt zip", "pt legacy"],
}


@dataclasses.dataclass(frozen=True)
class Target:
    """One thing to fuzz.

    Attributes:
        name: its name on the command line and in the table.
        share: how many of a round's blocks are its own.
        seeds: files to start from.
        listed: lists a file; returns whether it was taken.
        whole: does with a file all that users do; returns whether it was taken.
        change: changes a file in its structure; may raise what `foreign.UNREADABLE` has.
        cut: cuts a file into pieces; returns None if it has no pieces.
        room: bytes that looking at the result takes, beside the budget.
    """

    name: str
    share: int
    seeds: Callable[[], Sequence[bytes]]
    listed: Callable[[bytes], bool]
    whole: Callable[[bytes], bool] | None = None
    change: Callable[[Random, bytes], bytes] | None = None
    cut: Callable[[bytes], Pieces | None] | None = None
    room: int = 0

    def cases(self, seed: int, block: int) -> Any:
        """Yield the bytes of each case of a block, and whether all is to be done with them."""
        rng = random.Random(f"{seed} {self.name} {block}")
        data = self.start(rng)
        yield data, True
        cut = self.pieces(data)
        for number in range(1, BLOCK - 1):
            yield pieces.varied(rng, data, cut), number % WHOLE == 0
        if block % GROWN == 0:
            yield self.grown(rng, data, cut), False
        else:
            yield pieces.varied(rng, data, cut), False

    def start(self, rng: Random) -> bytes:
        """Return a file to vary: a seed, mostly changed in its structure."""
        good, every = seeds_of(self)
        known = shapes(self.name)
        if known and rng.random() < 0.1:
            data = shaped(rng.choice(known), 1 << rng.randrange(7, 11))
        else:
            data = rng.choice(good if rng.random() < 0.8 else every)
        if self.change is not None and rng.random() < 0.4:
            with contextlib.suppress(*foreign.UNREADABLE), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of making a case, not of reading it
                return self.change(rng, data)
        return data

    def pieces(self, data: bytes) -> Pieces | None:
        """Return a file cut into pieces; None if it has no pieces."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return None if self.cut is None else self.cut(data)

    def grown(self, rng: Random, data: bytes, cut: Pieces | None) -> bytes:
        """Return a long file: one that was repeated in itself, or of a shape known to be bad."""
        length = int(GROWN_BYTES.start * (GROWN_BYTES.stop / GROWN_BYTES.start) ** rng.random())
        known = shapes(self.name)
        if known and rng.random() < 0.6:
            data = shaped(rng.choice(known), length)
            return data if rng.random() < 0.5 else pieces.blindly(rng, data)
        return pieces.grown(rng, data, cut, length)

    def run(self, data: bytes, *, whole: bool) -> bool:
        """Run a case on bytes, and return whether they were accepted."""
        return (self.whole if whole and self.whole is not None else self.listed)(data)


@functools.cache
def seeds_of(target: Target) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the accepted seeds, whose variations go deepest, and all seeds."""
    every = target.seeds()
    good = []
    for data in every:
        with contextlib.suppress(Exception):  # what escapes is seen when it is a case
            if target.listed(data):
                good.append(data)
    return good or every, every


@functools.cache
def shapes(name: str) -> Sequence[Callable[[int], Any]]:
    """Return the functions that make the worst known files of a target, of any length."""
    from tests.attacks.shapes import load

    every = load()
    return [make for kind in SHAPES.get(name, [name]) for make in every.get(kind, {}).values()]


def shaped(make: Callable[[int], Any], length: int) -> bytes:
    made = make(length)
    return next(iter(made.values())) if isinstance(made, dict) else made  # of several, the first


def kept(name: str) -> list[bytes]:
    """Return the inputs kept for a target: found by coverage, or the smallest of their kind."""
    return [path.read_bytes() for path in sorted((KEPT / name).glob("*")) if path.is_file()]


def exercised(data: bytes, **options: Any) -> bool:
    return exercise(data, limits=LIMITS, **options).opened


# --- Our own files --------------------------------------------------------------------------------


def manifest_listed(data: bytes) -> bool:
    look(FileObjects.manifest_in(MemorySource(data), LIMITS)[1])
    return True


def look(manifest: Any) -> None:
    """Look at a few objects as a listing does."""
    objects = manifest.objects
    for name in itertools.islice(objects, 3):
        one = objects[name]
        for component in one.components.values():
            repr(component.dtype)
        repr(one.shape)


CBOR_ROW = (b"\x9f", b"", b"\xff")
JSON_ROW = (b"[", b",", b"]")


def version_of(base: mutation.Base) -> str:
    if base.container is Container.V1:
        version = base.root.get("version") if isinstance(base.root, dict) else None
        return "1.1" if str(version).startswith("1.1") else "1.2"
    return "" if base.container is None else base.container.value


@functools.cache
def ours(version: str) -> tuple[bytes, ...]:
    """Return the files of one version, and those that are of none."""
    found = [base.data for base in mutation.corpus() if version_of(base) in (version, "")]
    short = [data for data in found if len(data) < 600]
    return (*short, *found[::4], *kept(f"zt-{version}"))


def manifest_changed(rng: Random, data: bytes) -> bytes:
    number = rng.randrange(1 << 20)
    base = mutation.base_of(data)
    if rng.random() < 0.4:
        other = mutation.fresh(1, number % 4096)
        base = other if version_of(other) == version_of(base) else base
    return mutation.mutated(rng, base, 1, number)


def manifest_pieces(data: bytes) -> Pieces | None:
    """Cut the manifest, without the digest over itself, so that changes are seen."""
    base = mutation.base_of(data)
    if base.container is None or not isinstance(base.root, dict):
        return None
    root = {key: value for key, value in base.root.items() if key != "commit"}
    footer = b"ZTEN1000" if base.container is Container.V1 else b""

    def join(parts: list[bytes]) -> bytes:
        return sealed(base.blobs, b"".join(parts), footer=footer)

    return Pieces(pieces.heads(item(root)), join, cbor_words(), CBOR_ROW)


@functools.cache
def cbor_words() -> tuple[bytes, ...]:
    found = []
    for value in (*mutation.VALUES, *mutation.WORDS, *mutation.EDGES):
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            found.append(item(value))
    return tuple(found)


@functools.cache
def torn_files() -> tuple[bytes, ...]:
    """Return files that were appended to and lost their end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "torn.zt"
        path.write_bytes(save(few_tensors()))
        first = path.read_bytes()
        with ztensor.Editor(path, durable=False) as editor:
            editor.write("more", few_tensors()["a"])
        appended = path.read_bytes()
    nested = first
    for _ in range(6):
        nested = nested[:-16] + nested[-16:] * 2 + b"ZTEN1000"
    cut = [appended[:-4], appended[:-40], first[:-1], first + first[8:-3], nested[:-1]]
    return (*cut, build("1.1.0")[:-1], *kept("torn"))


def few_tensors() -> dict[str, Any]:
    import numpy as np

    return {"a": np.arange(3, dtype="<f4"), "b": np.arange(4, dtype="u1").reshape(2, 2)}


def searched(data: bytes) -> bool:
    state, _ = search(MemorySource(data), limits=LIMITS)
    return state is not None


def edited(data: bytes) -> bool:
    return second.changed(LIMITS, shard_folder(), data)


def ends_of(data: bytes) -> Pieces:
    """Cut a file at what looks like an end of a state."""
    return Pieces(re.split(rb"(.{8}ZTEN1000)", data, flags=re.DOTALL), b"".join)


# --- Parsers by themselves ------------------------------------------------------------------------


@functools.cache
def manifests() -> tuple[bytes, ...]:
    """Return manifests and parts of them, mostly short."""
    roots = [base.root for base in mutation.corpus() if base.root is not None]
    parts = [component for root in roots[::3] for component in mutation.components_of(root)]
    short = {data for data in map(item, (*parts, *roots)) if len(data) < 120}
    words = b"".join(cbor_words()[:40])
    return (*sorted(short), *map(item, roots[::60]), bytes([0x98, 40]) + words, *kept("cbor"))


def decoded(data: bytes) -> bool:
    cbor.decode(data, budget=Budget(LIMITS, len(data)))
    return True


def cbor_pieces(data: bytes) -> Pieces:
    return Pieces(pieces.heads(data), b"".join, cbor_words(), CBOR_ROW)


@functools.cache
def pickles() -> tuple[bytes, ...]:
    found = kept("pickle")
    for folder in ("accept", "reject"):
        for suffix, data in foreign.corpus(folder):
            if suffix == ".pt" and data.startswith(b"PK"):
                with contextlib.suppress(*foreign.UNREADABLE):
                    found += foreign.members_named(data, ".pkl")
    return tuple(data for data in found if len(data) <= 400)


def unpickled(data: bytes) -> bool:
    read_pickle(data, Vocabulary(CALLS, storage_of), Budget(LIMITS, len(data)))
    return True


def pickle_pieces(data: bytes) -> Pieces:
    return Pieces(pieces.opcodes(data), b"".join, PICKLE_WORDS, (b"(", b"", b"l"))


PICKLE_WORDS = (
    *(bytes([code]) for code in b"012()]}ldtuseabRNQ.\x81\x85\x86\x87\x88"), b"q\0", b"h\0",
    b"r\0\0\0\1",
    *(bytes([code]) for code in b"\x94\x8f\x90\x91\x92\x93"), b"J\xff\xff\xff\x7f", b"K\0",
    b"M\xff\xff", b"G\x7f\xf8\0\0\0\0\0\0", b"\x8a\x08" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\xff",
    b"\x8d" + b"\xff" * 8, b"\x95" + b"\xff" * 8, b"\x80\x05", b"I01\n", b"L9L\n", b"F1e400\n",
    b"S'\\x00'\n", b"V\\ud800\n", b"g9999999999\n", b"p0\n", b"ccollections\nOrderedDict\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n", b"cos\nsystem\n", b"cnumpy\ndtype\n", b"\x8c\x01a",
    b"ctorch\nFloatStorage\n", b"cbuiltins\nrange\n", b"c__builtin__\nset\n", b"\x96" + b"\xff" * 8,
)  # fmt: skip


@functools.cache
def frames() -> tuple[bytes, ...]:
    """Return zstd frames behind the length they decode to."""
    import zstandard

    def of(length: int, data: bytes) -> bytes:
        return length.to_bytes(4, "little") + data

    text = b"tensor " * 9
    found = [of(len(text), zstandard.compress(text, level)) for level in (1, 19)]
    noise = random.Random(1).randbytes(70)
    found += [of(70, zstandard.compress(noise)), of(0, zstandard.compress(b"")), of(0, b"")]
    found += [of(63, zstd_frame(text, block_type=kind)) for kind in (0,)]
    found += [of(9, zstd_frame(b"a" * 9)), of(18, zstd_frame(b"a" * 9) * 2)]
    skippable = b"\x50\x2a\x4d\x18\3\0\0\0abc"
    found += [of(9, skippable + zstd_frame(b"a" * 9))]
    zeros = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(5000))
    found += [of(5000, zeros), of(5000, zstandard.ZstdCompressor().compressobj().compress(b""))]
    stream = zstandard.ZstdCompressor().compressobj()
    found.append(of(5000, stream.compress(bytes(5000)) + stream.flush()))
    return (*found, *kept("zstd"))


ZSTD = Zstd()


def unzstd(data: bytes) -> bool:
    """Decode frames in each of the ways there are; those must come to the same."""
    length = int.from_bytes(data[:4], "little") & 0xFFFF
    stored = Held(memoryview(data)[4:])
    ends: list[Any] = []
    for way in (_into, _by_chunks, _by_runs):
        try:
            ends.append(way(stored, length))
        except (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError) as error:
            ends.append(error)
    is_refused = [isinstance(end, Exception) for end in ends]
    if len(set(is_refused)) > 1 or (not is_refused[0] and len(set(ends)) > 1):
        raise PromiseBroken(f"decoded in three ways: {ascii(ends)[:1000]}")
    if is_refused[0]:
        raise ends[0]
    return True


def _into(stored: Any, length: int) -> bytes:
    out = bytearray(length)
    ZSTD.decode_into(stored, memoryview(out), LIMITS)
    return bytes(out)


def _by_chunks(stored: Any, length: int) -> bytes:
    return b"".join(ZSTD.decode_chunks(stored, length, LIMITS))


def _by_runs(stored: Any, length: int) -> bytes:
    runs = ZSTD.require_length(stored, length, LIMITS)
    if runs is None:
        return _into(stored, length)
    out = bytearray(length)
    view = memoryview(out)
    for (start, stop), (first, last) in zip(
        itertools.pairwise(runs.stored), itertools.pairwise(runs.decoded), strict=True
    ):
        ZSTD.decode_run(stored, start, stop, view[first:last], LIMITS)
    return bytes(out)


# --- Sets of files --------------------------------------------------------------------------------

SHARDS = ("model-00001-of-00002.zt", "model-00002-of-00002.zt")


@functools.cache
def indexes() -> tuple[bytes, ...]:
    one = {"metadata": {"total_size": 24}, "weight_map": dict(zip("ab", SHARDS, strict=True))}
    two = {"weight_map": {"a": SHARDS[0]}, "metadata": None}
    three = {"weight_map": {"a": "x/../" + SHARDS[0], "b": "/etc/passwd", "c": "..\\x.zt"}}
    return (*(json.dumps(index).encode() for index in (one, two, three)), *kept("index"))


def indexed(data: bytes) -> bool:
    parse_index(data, LIMITS)
    return True


@functools.cache
def shard_folder() -> Path:
    memory = Path("/dev/shm")  # noqa: S108  # written to for each case, and no disk is wanted
    where = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="ztensor-fuzz-", dir=where))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, (key, tensor) in zip(SHARDS, few_tensors().items(), strict=True):
        (folder / name).write_bytes(save({key: tensor}))
    return folder


def opened_set(data: bytes) -> bool:
    """Open two good shards behind an index of these bytes."""
    path = shard_folder() / "model.zt.index.json"
    path.write_bytes(data)
    try:
        with ztensor.open(path, limits=LIMITS) as reader:
            repr(reader)
            for name in list(reader)[:3]:
                reader.metadata(name)
                reader.read(name)
            reader.verify()
    except SourceNotFoundError:
        return False  # the index names missing files
    return True


JSON_WORDS = (
    *(word for word in foreign.WORDS if b"'" not in word),
    b'"weight_map"', b'"metadata"', b'"../a"', b'"\\u0000"', b'"a/b"', b'"model-00001-of-00002.zt"',
    b"[" * 5000, b"9" * 5000, b"NaN", b"-Infinity", b"\xef\xbb\xbf", b'{"a":', b'"\xed\xa0\x80"',
)  # fmt: skip


def json_pieces(data: bytes) -> Pieces:
    return Pieces(pieces.tokens(data), b"".join, JSON_WORDS, JSON_ROW)


# --- Checkpoints of many processes ----------------------------------------------------------------

CHECKPOINT = HERE.parent / "tests" / "corpus" / "foreign" / "accept" / "dcp" / "stock"


def metadata_files() -> tuple[bytes, ...]:
    return ((CHECKPOINT / ".metadata").read_bytes(), *kept("dcp"))


@functools.cache
def checkpoint_folder() -> Path:
    """Return a folder with the files of a good checkpoint."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in CHECKPOINT.glob("*.distcp"):
        shutil.copy(path, folder)
    return folder


def opened_checkpoint(data: bytes) -> bool:
    """Use a folder with these bytes as its `.metadata` in every way that users do."""
    folder = checkpoint_folder()
    (folder / ".metadata").write_bytes(data)
    return exercise(folder, limits=LIMITS).opened


# --- Files of other formats -----------------------------------------------------------------------


def foreign_listed(data: bytes) -> bool:
    projection = project(MemorySource(data), LIMITS)
    if projection is None:
        raise NotZTensorError("of no format")
    look(projection.manifest)
    return True


@functools.cache
def files(suffix: str) -> tuple[bytes, ...]:
    """Return the files of one format: good ones twice, as hostile ones show less of a change."""
    good = [data for kind, data in foreign.corpus("accept") if kind == suffix]
    bad = [data for kind, data in foreign.corpus("reject") if kind == suffix]
    return tuple((good + kept("hdf5" if suffix == ".h5" else suffix[1:])) * 2 + bad)


def safetensors_pieces(data: bytes) -> Pieces:
    stop = 8 + int.from_bytes(data[:8], "little")
    rest = data[stop:]

    def join(parts: list[bytes]) -> bytes:
        header = b"".join(parts)
        return len(header).to_bytes(8, "little") + header + rest

    return Pieces(pieces.tokens(data[8:stop]), join, JSON_WORDS, JSON_ROW)


def npy_pieces(data: bytes) -> Pieces:
    width = 2 if data[6:7] == b"\1" else 4
    start = 8 + width
    stop = min(start + int.from_bytes(data[8:start], "little"), len(data))

    def join(parts: list[bytes]) -> bytes:
        header = b"".join(parts)
        length = len(header) & (1 << 8 * width) - 1
        return data[:8] + length.to_bytes(width, "little") + header + data[stop:]

    return Pieces(pieces.tokens(data[start:stop]), join, foreign.WORDS, (b"(", b",", b")"))


def torch_pieces(data: bytes) -> Pieces | None:
    return None if data.startswith(b"PK") else pickle_pieces(data)


def format_edited(data: bytes) -> bool:
    return edits.changed(shard_folder(), data)


def other(name: str, share: int, cut: Any = None, **options: Any) -> Target:
    suffix = ".h5" if name == "hdf5" else f".{name}"
    seeds = functools.partial(files, suffix)
    change = foreign.CHANGES[suffix]
    return Target(name, share, seeds, foreign_listed, exercised, change, cut, **options)


def zt(version: str, share: int) -> Target:
    seeds = functools.partial(ours, version)
    return Target(
        f"zt-{version}", share, seeds, manifest_listed, exercised, manifest_changed, manifest_pieces
    )


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cbor", 100, manifests, decoded, cut=cbor_pieces),
        zt("0.1", 3),
        zt("1.0", 3),
        zt("1.1", 5),
        zt("1.2", 6),
        Target(
            "zt-2", 6, second.seeds, manifest_listed, exercised, second.change, second.cut,
        ),
        Target(
            "kinds-2", 2, second.seeds,
            functools.partial(second.both_ways, v2.parse_manifest, LIMITS), None,
            second.change, second.cut, room=8 << 20,
        ),
        Target(
            "torn-2", 1, second.torn, searched, functools.partial(exercised, recover=True),
            None, second.ends,
        ),
        Target(
            "edit-2", 1, second.seeds, edited, None, second.change, second.cut, room=64 << 20,
        ),
        Target(
            "edit-safetensors", 2, functools.partial(files, ".safetensors"), format_edited, None,
            foreign.CHANGES[".safetensors"], safetensors_pieces, room=64 << 20,
        ),
        Target(
            "edit-gguf", 2, functools.partial(files, ".gguf"), format_edited, None,
            foreign.CHANGES[".gguf"], room=64 << 20,
        ),
        Target(
            "kinds", 1, functools.partial(ours, "1.2"),
            functools.partial(second.both_ways, v1.parse_manifest, LIMITS), None, manifest_changed,
            manifest_pieces, room=8 << 20,
        ),
        Target(
            "torn", 3, torn_files, searched, functools.partial(exercised, recover=True),
            cut=ends_of,
        ),
        Target("zstd", 12, frames, unzstd, room=2 << LIMITS.window_log),
        Target("delta-stream", 20, deltas.seeds, deltas.applied, cut=deltas.cut, room=8 << 20),
        Target(
            "delta-files", 2, delta_files.seeds,
            lambda data: delta_files.used(shard_folder(), data), change=delta_files.change,
            room=8 << 20,
        ),
        Target(
            "delta-dialects", 2, lambda: dialects.seeds(shard_folder()),
            lambda data: dialects.applied(shard_folder(), data), change=dialects.change,
            cut=functools.partial(dialects.cut, JSON_WORDS, JSON_ROW), room=8 << 20,
        ),
        Target("planes", 20, planes.seeds, planes.decoded, cut=planes.cut, room=8 << 20),
        Target("index", 40, indexes, indexed, opened_set, cut=json_pieces),
        other("safetensors", 16, cut=safetensors_pieces),
        other("npy", 20, cut=npy_pieces),
        other("npz", 8),
        other("pt", 3, cut=torch_pieces),
        Target(
            "dcp", 4, metadata_files, foreign_listed, opened_checkpoint, foreign.pickled,
            pickle_pieces,
        ),
        Target("pickle", 50, pickles, unpickled, cut=pickle_pieces),
        other("gguf", 8),
        other("onnx", 8),
        other("hdf5", 2),
        other("keras", 1),
    )
}  # fmt: skip


def rounds() -> list[str]:
    """Return the targets of one round of blocks, spread evenly."""
    places = [
        ((number + 0.5) / target.share, target.name)
        for target in TARGETS.values()
        for number in range(target.share)
    ]
    return [name for _, name in sorted(places)]


assert set(VERSIONS) == {"0.1.0", "1.1.0", "1.2.0"}  # a new one needs a target
