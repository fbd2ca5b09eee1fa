"""Keys, passwords and signatures are in no output: no text, JSON, file, log, error or pickle."""

from __future__ import annotations

import logging
import pickle
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy
from tests.remote.range_server import RangeServer
from tests.remote.test_everywhere import TENSORS, WAYS, arguments, as_s3fs, takers
from ztensor.errors import SourceNotFoundError, UsageError, ZTensorError

if TYPE_CHECKING:
    from tests.remote.conftest import Variables
    from tests.remote.s3_server import S3Server
    from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow

pytest.importorskip("obstore", reason="obstore reads URLs")
SECRETS = ("MarkedKey", "MarkedToken", "MarkedPassword", "MarkedSignature")
REFUSED = 2
NAMES = ("m.zt", "damaged.zt", "none.zt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "served"
    made.mkdir()
    znumpy.save_file(TENSORS, made / "m.zt")
    whole = bytearray((made / "m.zt").read_bytes())
    whole[5000] ^= 1
    (made / "damaged.zt").write_bytes(whole)
    return made


@pytest.fixture(params=["signed", "keys"])
def place(
    request: pytest.FixtureRequest, folder: Path, s3: S3Server, bucket: str
) -> Iterator[Callable[[str], tuple[str, dict[str, str]]]]:
    """Give what makes of a file's name its URL, and the options of its store."""
    keys = {**s3.storage(), "secret_access_key": "MarkedKey", "session_token": "MarkedToken"}
    if request.param == "keys":
        for path in folder.iterdir():
            s3.put(bucket, path.name, path.read_bytes())
        yield lambda name: (f"s3://{bucket}/{name}", keys)
        return
    with RangeServer(folder) as server:
        host = f"user:MarkedPassword@127.0.0.1:{server.port}"
        yield lambda name: (f"http://{host}/{name}?X-Amz-Signature=MarkedSignature&part=1", {})


# No store changes a part of an object; the others take a folder.
REFUSING = {
    "append", "replace", "rm", "mv", "set", "compact", "repair", "conformance",
    "completions", "sign",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_the_command_prints_and_writes(
    place: Callable[[str], tuple[str, dict[str, str]]],
    folder: Path,
    tmp_path: Path,
    name: str,
    run: Run,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    variables: Variables,
) -> None:
    from ztensor.cli.main import VERBS

    url, options = place(name)
    variables({"ZTENSOR_STORAGE": ",".join(f"{k}={v}" for k, v in options.items())})
    caplog.set_level(logging.DEBUG)
    for verb in [verb for verbs in VERBS.values() for verb in verbs]:
        words = arguments(verb, url, folder)
        for more in ([], ["--json"]) if name == "m.zt" else (["--json"],):
            here = tmp_path / "here"
            here.mkdir()
            monkeypatch.chdir(here)
            ended = run(verb, *words, *more)
            code, text = ended.code, ended.out + ended.err
            for one in here.rglob("*"):
                text += one.name + (str(one.read_bytes()) if one.is_file() else "")
            assert not [one for one in SECRETS if one in text + caplog.text], verb
            assert "Traceback" not in text, verb
            if name == "m.zt" and not (verb == "ckpt" and "signed" in text):
                assert (code == REFUSED) == (verb in REFUSING), (verb, text)
                # No step of a run is there.
                assert code in ((1, REFUSED) if verb == "ckpt" else (0, REFUSED)), (verb, text)
            shutil.rmtree(here)


def behind(error: BaseException) -> list[BaseException]:
    """Return all that an error came from, hidden ones too: some libraries pickle these as well."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error.__cause__, error.__context__]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.append(one)
            waiting += [one.__cause__, one.__context__]
    return found


def shown(value: Any) -> str:
    """Return all that a value shows: its text, and its pickle where it has one."""
    text = f"{value!r} {value}"
    if isinstance(value, BaseException):
        text += "".join(traceback.format_exception(value))
        text += "".join(map(repr, behind(value)))
    try:
        text += str(pickle.dumps(value))
    except (TypeError, AttributeError, pickle.PicklingError, UsageError) as error:
        text += str(error)
    return text


@pytest.mark.parametrize("name", NAMES)
def test_what_python_shows(
    place: Callable[[str], tuple[str, dict[str, str]]],
    folder: Path,
    tmp_path: Path,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    url, options = place(name)
    remote = ztensor.Remote(url, options)
    found = {"remote": repr(remote)}

    def attempt(what: str, function: Callable[..., Any], *given: Any, **options: Any) -> None:
        try:
            value = function(*given, **options)
        except (ZTensorError, KeyError) as error:
            value = error
        found[what] = shown(value)

    for what, function in takers("Openable").items():
        use = WAYS[what.rpartition(" ")[2]](function)
        attempt(what, use, url, storage=options)
        if options:
            attempt(f"{what} of fsspec", use, url, storage_options=as_s3fs(options))
    targets = {"report": tmp_path / "r.html", "convert": tmp_path / "c.zt"}
    others: dict[str, Any] = {"diff": folder / "m.zt", "plot": "weight", **targets}
    others |= {key: {} for key in ("torch load_into", "jax load_sharded", "flax load_sharded")}
    for what, function in takers("Readable").items():
        attempt(what, function, remote, *([others[what]] if what in others else []))
    attempt("reader", ztensor.open, url, storage=options)
    manager = ztensor.CheckpointManager(url.partition("?")[0] + "/", storage=options)
    found["manager"] = shown(manager)
    attempt("steps", manager.checkpoints)
    attempt("path", manager.path, 1)
    attempt("editor", ztensor.Editor, remote)
    attempt("writer", ztensor.Writer, ztensor.Remote(f"{url}&new", options))
    pages = "".join(path.read_text("latin-1") for path in tmp_path.glob("?.*"))
    leaks = [
        f"{what}: {one} in ...{text[max(0, text.index(one) - 300) : text.index(one) + 50]}..."
        for what, text in found.items()
        for one in SECRETS
        if one in text
    ]
    assert leaks == []
    assert not [one for one in SECRETS if one in pages + caplog.text]


def test_a_signed_object_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    with RangeServer(tmp_path) as server:
        for name in ("none.zt", "none/"):
            with pytest.raises(SourceNotFoundError, match="no such object"):
                ztensor.open(f"{server.url}/{name}?sig=s3cret")


def test_a_name_that_is_like_a_part_of_a_url_is_printed(tmp_path: Path, run: Run) -> None:
    znumpy.save_file({"a?x=1": np.zeros(3), "me@1": np.zeros(3)}, tmp_path / "m.zt")
    with RangeServer(tmp_path) as server:
        printed = run("ls", f"http://me@127.0.0.1:{server.port}/m.zt?x=1").out
    assert "a?x=1" in printed
    assert "me@1" in printed
