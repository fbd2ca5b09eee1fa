"""Every fault against every operation on a store: the outcomes as a table.

    python -m tests.remote.faults

prints the table; `test_faults.py` holds each line of it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
from tests.remote.fault_proxy import Fault, FaultProxy
from tests.remote.range_server import RangeServer
from tests.remote.s3_server import S3Server
from tests.unit.distributed.saving import save
from ztensor.distributed import compact, repair
from ztensor.errors import ZTensorError
from ztensor.numpy import load_file, save_file
from ztensor.remote import upload

# No operation may take longer under any fault, with the limits below.
MOST_SECONDS = 30.0
MIB = 1 << 20
PART_BYTES = 5 * MIB  # the least that S3 takes
OLD = {"a": np.arange(400_000.0), "b": np.ones((300, 500), np.float32)}
NEW = {"a": np.arange(400_000.0) + 1, "b": np.zeros((300, 500), np.float32)}
LARGE = {"x": np.arange(1_500_000.0)}  # three parts
KEY, ROOT = "model.zt", "step/checkpoint.zt"


def limits(storage: dict[str, Any]) -> dict[str, Any]:
    """Return options of a store with limits of time that a test can wait for."""
    return {
        **storage,
        "client_options": {"allow_http": True, "timeout": "2s", "connect_timeout": "1s"},
        "retry_config": {
            "max_retries": 2,
            "retry_timeout": datetime.timedelta(seconds=5),
            "backoff": {
                "init_backoff": datetime.timedelta(milliseconds=10),
                "max_backoff": datetime.timedelta(milliseconds=50),
                "base": 2,
            },
        },
    }


@dataclass
class Scene:
    """A store with a model, a proxy before it, and another host."""

    s3: S3Server
    proxy: FaultProxy
    elsewhere: RangeServer
    bucket: str
    cache: str | None = None
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"s3://{self.bucket}/"
        direct = self.s3.storage()
        save_file(OLD, ztensor.Remote(f"{self.url}{KEY}", direct))
        self.old = self.s3.get(self.bucket, KEY) or b""
        save_file(NEW, ztensor.Remote(f"{self.url}new.zt", direct))
        self.new = self.s3.get(self.bucket, "new.zt") or b""
        save_file(OLD, ztensor.Remote(f"{self.url}set.zt", direct), max_shard_size="1MB")
        self.set = {key: self.s3.get(self.bucket, key) or b"" for key in self.keys("set")}
        save(f"{self.url}step", OLD, storage=direct)
        self.step = {key: self.s3.get(self.bucket, key) or b"" for key in self.keys("step/")}

    def keys(self, start: str) -> list[str]:
        return [key for key in self.s3.keys(self.bucket) if key.startswith(start)]

    def at(self, key: str) -> Any:
        """Return the `Remote` of an object behind the proxy."""
        storage = limits(self.s3.storage(self.proxy.url))
        return ztensor.Remote(f"{self.url}{key}", storage, cache=self.cache)

    def restore(self) -> None:
        """Put everything back."""
        self.proxy.faults = []
        self.proxy.record.clear()
        self.elsewhere.record.clear()
        for key in self.s3.keys(self.bucket):
            if key not in (KEY, "new.zt", *self.set, *self.step):
                self.s3.delete(self.bucket, key)
        for key, body in ((KEY, self.old), *self.set.items(), *self.step.items()):
            if self.s3.get(self.bucket, key) != body:
                self.s3.put(self.bucket, key, body)


def _same(found: Any, wanted: dict[str, np.ndarray]) -> bool:
    return set(found) == set(wanted) and all((found[n] == wanted[n]).all() for n in wanted)


def _is_one_of_them(found: Any) -> bool:
    """Return whether a result is all of the old model or all of the new one, as it was replaced."""
    return _same(found, OLD) or _same(found, NEW)


# --- Operations: each returns whether its result was right ------------------------------------


def _list(scene: Scene) -> bool:
    with ztensor.open(scene.at(KEY)) as reader:
        return sorted(reader) == sorted(OLD)


def _one(scene: Scene) -> bool:
    with ztensor.open(scene.at(KEY)) as reader:
        return any(np.array_equal(reader["a"], model["a"]) for model in (OLD, NEW))


def _rows(scene: Scene) -> bool:
    with ztensor.open(scene.at(KEY)) as reader:
        rows = reader.get_slice("b")[7:9]
        return any(np.array_equal(rows, model["b"][7:9]) for model in (OLD, NEW))


def _load(scene: Scene) -> bool:
    return _is_one_of_them(load_file(scene.at(KEY)))


def _verify(scene: Scene) -> bool:
    with ztensor.open(scene.at(KEY)) as reader:
        report = reader.verify()
        for problem in report.problems:
            if problem.reason is ztensor.Reason.SOURCE_CHANGED or "SOURCE" in str(problem.reason):
                raise ztensor.SourceError(str(problem), reason=problem.reason)
        return report.ok


def _save(scene: Scene) -> bool:
    save_file(NEW, scene.at(KEY))
    return scene.s3.get(scene.bucket, KEY) == scene.new


def _save_large(scene: Scene) -> bool:
    save_file(LARGE, scene.at(KEY))
    return _same(load_file(ztensor.Remote(f"{scene.url}{KEY}", scene.s3.storage())), LARGE)


def _save_set(scene: Scene) -> bool:
    save_file(NEW, scene.at("set.zt"), max_shard_size="1MB")
    return bool(scene.s3.get(scene.bucket, "set.zt.index.json") != scene.set["set.zt.index.json"])


def _convert(scene: Scene) -> bool:
    ztensor.convert(scene.at(KEY), scene.at("out.safetensors"))
    written = ztensor.Remote(f"{scene.url}out.safetensors", scene.s3.storage())
    return _is_one_of_them(load_file(written))


def _repair(scene: Scene) -> bool:
    scene.s3.delete(scene.bucket, ROOT)
    repair(scene.at("step"))
    with ztensor.open(f"{scene.url}step", storage=scene.s3.storage()) as reader:
        return _same({name: reader[name] for name in reader}, OLD)


def _compact(scene: Scene) -> bool:
    dead = "step/00007-0123abcd.zt"
    scene.s3.put(scene.bucket, dead, next(iter(scene.step.values())))
    compact(scene.at("step"), older_than=0)
    return scene.keys("step/") == sorted(scene.step)


READING: dict[str, Callable[[Scene], bool]] = {
    "list": _list,
    "a tensor": _one,
    "rows": _rows,
    "load": _load,
    "verify": _verify,
}
WRITING: dict[str, Callable[[Scene], bool]] = {
    "save": _save,
    "save in parts": _save_large,
    "save shards": _save_set,
    "convert": _convert,
    "repair": _repair,
    "compact": _compact,
}
OPERATIONS = {**READING, **WRITING}

# --- Faults -----------------------------------------------------------------------------------


def _then(change: Callable[[Scene], None], first: int) -> Callable[[Scene], Fault]:
    return lambda scene: Fault("then", first=first, action=lambda: change(scene))


def _replace(scene: Scene) -> None:
    scene.s3.put(scene.bucket, KEY, scene.new)


def _shrink(scene: Scene) -> None:
    scene.s3.put(scene.bucket, KEY, scene.old[: len(scene.old) // 2])


def _delete(scene: Scene) -> None:
    scene.s3.delete(scene.bucket, KEY)


def _each(kind: str, **options: Any) -> Callable[[Scene], Fault]:
    return lambda _: Fault(kind, **options)


FAULTS: dict[str, Callable[[Scene], Fault]] = {
    "503 once": _each("503"),
    "503 on the third": _each("503", first=3),
    "503 always": _each("503", count=None),
    "500 once": _each("500"),
    "dropped once": _each("dropped"),
    "dropped always": _each("dropped", count=None),
    "dropped from the third on": _each("dropped", first=3, count=None),
    "answer lost once": _each("unheard"),
    "body cut once": _each("cut"),
    "body cut always": _each("cut", count=None),
    "too short once": _each("short", first=3),
    "too short always": _each("short", count=None),
    "too long always": _each("long", count=None),
    "another range always": _each("elsewhere", count=None),
    "200 for 206 once": _each("whole", first=3),
    "200 for 206 always": _each("whole", count=None),
    "403 on the third": _each("403", first=3),
    "403 always": _each("403", count=None),
    "404 always": _each("404", count=None),
    "redirected always": lambda scene: Fault("redirected", count=None, to=scene.elsewhere.url),
    "slow trickle once": _each("trickled", seconds=0.02),
    "slow trickle always": _each("trickled", count=None, seconds=0.25),
    "silent once": _each("silent", seconds=2.5),
    "silent always": _each("silent", count=None, seconds=2.5),
    "replaced while opening": _then(_replace, 2),
    "replaced while reading": _then(_replace, 3),
    "shrunk while reading": _then(_shrink, 3),
    "deleted while reading": _then(_delete, 3),
}


# Under these an upload cannot be aborted: the store's answer to its beginning, with its number, is
# lost, or the store is unreachable.
UNKNOWN = frozenset(
    [
        "answer lost once",
        "body cut once",
        "body cut always",
        "dropped from the third on",
        "too short always",
        "slow trickle always",
    ]
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an operation under a fault.

    Attributes:
        text: for the table: `right`, or the error of ours that was raised.
        wrong: the broken promise, or empty.
        seconds: how long it took.
    """

    text: str
    wrong: str
    seconds: float


def attempt(scene: Scene, fault: str, operation: str) -> Outcome:
    """Do an operation under a fault, and judge the outcome."""
    scene.restore()
    uploads = len(scene.s3.uploads(scene.bucket))
    scene.proxy.faults = [FAULTS[fault](scene)]
    upload.PART_BYTES, usual = PART_BYTES, upload.PART_BYTES
    begun = time.monotonic()
    wrong = ""
    try:
        text = "right" if OPERATIONS[operation](scene) else "WRONG"
        if text != "right":
            wrong = "a wrong result"
    except ZTensorError as error:
        reason = error.reason.value if error.reason is not None else ""
        text = type(error).__name__ + (f" {reason}" if reason else "")
        if error.reason is ztensor.Reason.UNFORESEEN:
            wrong = f"an unforeseen error: {error}"
        if "testing" in str(error) or "X-Amz" in str(error):
            wrong = f"the error contains a secret: {error}"
    finally:
        seconds = time.monotonic() - begun
        upload.PART_BYTES = usual
        scene.proxy.faults = []
    if seconds > MOST_SECONDS:
        wrong = f"took {seconds:.0f} s"
    if any("authorization" in one.headers for one in scene.elsewhere.record.seen):
        wrong = "another host got the credentials"
    if operation in WRITING:
        wrong = wrong or _left(scene)
        dangling = len(scene.s3.uploads(scene.bucket)) - uploads
        if dangling:
            text += f", {dangling} upload left"
            wrong = wrong or ("" if fault in UNKNOWN else f"{dangling} uploads are left")
    return Outcome(text, wrong, seconds)


def _left(scene: Scene) -> str:
    body = scene.s3.get(scene.bucket, KEY)
    if body is not None and body not in (scene.old, scene.new, scene.old[: len(scene.old) // 2]):
        try:
            with ztensor.open(body) as reader:
                is_whole = reader.verify().ok
        except ZTensorError:
            is_whole = False
        if not is_whole:
            return "half an object is visible"
    for key, whole in scene.step.items():
        body = scene.s3.get(scene.bucket, key)
        if body != whole and not (key == ROOT and (body is None or _is_root(scene))):
            return f"{key} was changed"
    text = scene.s3.get(scene.bucket, "set.zt.index.json")
    if text is None:
        return "the index is gone"
    try:
        ztensor_set = _read_set(scene, text)
    except ZTensorError as error:
        return f"the set is not whole: {error}"
    return "" if _same(ztensor_set, OLD) or _same(ztensor_set, NEW) else "a mixture of two sets"


def _is_root(scene: Scene) -> bool:
    """Return whether the root of the checkpoint leads to all of it."""
    with ztensor.open(f"{scene.url}step", storage=scene.s3.storage()) as reader:
        return _same({name: reader[name] for name in reader}, OLD)


def _read_set(scene: Scene, text: bytes) -> dict[str, Any]:
    found = {}
    for name, file in json.loads(text)["weight_map"].items():
        body = scene.s3.get(scene.bucket, file)
        if body is None:
            raise ztensor.SourceError("a shard is missing", file=file)
        with ztensor.open(body) as reader:
            found[name] = reader[name]
    return found


@contextlib.contextmanager
def scene_of(s3: S3Server, bucket: str) -> Any:
    with (
        tempfile.TemporaryDirectory() as folder,
        FaultProxy(s3.url) as proxy,
        RangeServer(Path(folder)) as elsewhere,
    ):
        yield Scene(s3, proxy, elsewhere, bucket)


def _table(scene: Scene) -> int:
    """Print the outcome of every fault against every operation; return how many are wrong."""
    out = sys.stdout
    wrong = 0
    for fault in FAULTS:
        out.write(f"{fault}\n")
        for operation in OPERATIONS:
            found = attempt(scene, fault, operation)
            wrong += bool(found.wrong)
            mark = f"   WRONG: {found.wrong}" if found.wrong else ""
            out.write(f"    {operation:<14} {found.text:<52} {found.seconds:5.1f} s{mark}\n")
            out.flush()
        if scene.cache is not None:  # the copies are right
            scene.restore()
            if not _load(scene) or not _rows(scene):
                out.write("    WRONG: the cache has a wrong copy\n")
                wrong += 1
    how = "without a cache" if scene.cache is None else "through a cache on disk"
    out.write(f"{len(FAULTS)} faults x {len(OPERATIONS)} operations {how}: {wrong} wrong\n\n")
    return wrong


def main() -> int:
    """Print the tables; return 1 where something is wrong."""
    with (
        S3Server() as s3,
        tempfile.TemporaryDirectory() as folder,
    ):
        s3.make_bucket("bucket")
        with scene_of(s3, "bucket") as scene:
            wrong = _table(scene)
            scene.cache = folder
            wrong += _table(scene)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
