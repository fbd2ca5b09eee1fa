"""Names, options and ends of a writer, and the file that an unfinished one leaves."""

from __future__ import annotations

import errno
import gc
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.naming import shown
from tests.refusals import refused
from ztensor import Tensor, Writer
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    FormatError,
    NotRepresentableError,
    Reason,
    SourceError,
    UsageError,
    ZTensorError,
)
from ztensor.numpy import load, load_file, save, save_file

FOUR = np.arange(4, dtype=np.float32)


def written(fill: Callable[[Writer], object], **options: Any) -> bytes:
    target = io.BytesIO()
    with Writer(target, **options) as writer:
        fill(writer)
    return target.getvalue()


# --- Names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_any_text_is_a_name(version: str) -> None:
    names = ["", "a\0b", "../../etc/passwd", "\n\x1b[31m", "e\u0301", "é", "\U0001f600", "\uffff"]
    names.append("x" * 70_000)
    forward = {name: FOUR + index for index, name in enumerate(names)}
    data = save(forward, version=version)
    assert sorted(load(data)) == sorted(names)  # a composed name is not its decomposed form
    assert data == save(dict(reversed(forward.items())), version=version)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("\ud800", NotRepresentableError),
        ("a\udcffb", NotRepresentableError),
        (b"w", ArgumentTypeError),
        (5, ArgumentTypeError),
        (None, ArgumentTypeError),
        ([], ArgumentTypeError),
    ],
    ids=ascii,
)
def test_other_names_are_refused(name: Any, kind: type[Exception]) -> None:
    def fill(writer: Writer) -> None:
        for array in (FOUR, np.zeros(1 << 18)):
            with pytest.raises(kind):
                writer.write(name, array)
            with pytest.raises(kind):
                save({"a": FOUR, name: array} if name != [] else {"a": FOUR, 3: array})  # type: ignore[dict-item]
        with pytest.raises(kind):
            writer.stream(name, (4,), "f32")

    assert load(written(fill)) == {}


def test_a_name_is_written_once() -> None:
    def fill(writer: Writer) -> None:
        writer.write("w", FOUR)
        writer.share("v", "w")
        for again in (
            lambda: writer.write("w", FOUR),
            lambda: writer.write("w", np.zeros(10_000)),
            lambda: writer.write("v", FOUR),
            lambda: writer.stream("w", (1,), "f32"),
            lambda: writer.share("w", "w"),
        ):
            with refused(UsageError, Reason.DUPLICATE_WRITE):
                again()

    assert list(load(written(fill))) == ["v", "w"]


def test_names_of_a_canonical_file_rise() -> None:
    def fill(writer: Writer) -> None:
        writer.write("b", FOUR)
        for name in ("b", "a", "B"):
            with pytest.raises(UsageError):
                writer.write(name, FOUR)
        with pytest.raises(UsageError):  # whether its bytes are there is known only at its end
            writer.stream("c", (4,), "f32")
        writer.write("ba", FOUR)

    assert list(load(written(fill, version="2.1", canonical=True))) == ["b", "ba"]


# --- Options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compression", "encoding"),
    [
        (False, "raw"), (None, "raw"), ("none", "raw"), (0, "raw"),
        (True, "zstd"), ("zstd", "zstd"), (1, "zstd"), (19, "zstd"), (-5, "zstd"),
    ],
)  # fmt: skip
def test_compression(compression: Any, encoding: str) -> None:
    data = np.zeros(10_000)
    for saved in (
        save({"x": data}, compression=compression),
        written(lambda writer: writer.write("x", data, compress=compression or False)),
    ):
        with ztensor.open(saved) as reader:
            component = reader.metadata("x").components["data"]
            assert component.encoding == encoding
            assert component.uncompressed_length == (80_000 if encoding == "zstd" else None)
            assert (component.length < 1000) is (encoding == "zstd")


def test_an_object_may_differ_from_the_writers_options() -> None:
    some = np.zeros(99)

    def fill(writer: Writer) -> None:
        writer.write("as asked", some)
        writer.write("raw", some, compress=False)
        writer.write("bare", some, checksum=False)
        writer.add("added", some, False, "sha256")
        writer.write("sha", some, checksum="sha256")

    with ztensor.open(written(fill, compression=True)) as reader:
        found = {
            name: (part.encoding, (part.digest or "-").split(":")[0])
            for name, part in ((n, reader.metadata(n).components["data"]) for n in reader)
        }
    assert found == {
        "as asked": ("zstd", "crc32c"),
        "raw": ("raw", "crc32c"),
        "bare": ("zstd", "-"),
        "added": ("raw", "sha256"),
        "sha": ("zstd", "sha256"),
    }


WRONG: dict[type[Exception], list[dict[str, Any]]] = {
    ArgumentValueError: [
        {"version": "2.0.0"}, {"version": 1.2}, {"version": []}, {"compression": 23},
        {"compression": "gzip"}, {"checksum": "xxh3"}, {"durable": "yes"}, {"threads": 0},
        {"threads": -1}, {"threads": 1.5}, {"threads": True}, {"threads": "2"},
    ],
    ArgumentTypeError: [{"compression": 2.5}, {"attributes": 5}, {"attributes": ["a"]}],
    NotRepresentableError: [
        {"attributes": {1: "a"}}, {"attributes": {"a": object()}},
        {"attributes": {"a": 1}, "version": "1.1.0"},
        {"attributes": {"a": "b"}, "version": "0.1.0"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "kind"), [(one, kind) for kind, many in WRONG.items() for one in many], ids=shown
)
def test_wrong_options_leave_the_old_file(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception]
) -> None:
    target = tmp_path / "m.zt"
    target.write_bytes(b"old")
    with pytest.raises(kind):
        Writer(target, **options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"m.zt": b"old"}


@pytest.mark.parametrize(
    "attributes", [5, ["a"], {1: "a"}, {"a": object()}, {"a": "\ud800"}, {"a": 2**64}], ids=shown
)
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_wrong_attributes_of_an_object_are_refused(attributes: Any, version: str) -> None:
    def fill(writer: Writer) -> None:
        with pytest.raises((ArgumentTypeError, NotRepresentableError)) as caught:
            writer.write("w", FOUR, attributes=attributes)
        assert caught.value.object_name == "w"
        with pytest.raises((ArgumentTypeError, NotRepresentableError)):
            writer.stream("w", (4,), "f32", attributes=attributes)

    assert load(written(fill, version=version)) == {}


def test_after_a_refusal_the_writer_goes_on() -> None:
    def fill(writer: Writer) -> None:
        writer.write("a", FOUR)
        for bad in ({"data": "text"}, np.array(["x"]), Tensor(FOUR, shape=(5,))):
            with pytest.raises(ZTensorError):
                writer.write("b", bad)
        with pytest.raises(ArgumentValueError):
            writer.write("b", FOUR, compress="brotli")
        with pytest.raises(ArgumentValueError):
            writer.write("b", FOUR, checksum="md5")
        writer.write("b", FOUR)

    assert written(fill) == save({"a": FOUR, "b": FOUR.copy()})


def test_the_caller_may_change_everything_afterwards() -> None:
    inner: list[Any] = [1]
    data = FOUR.copy()
    attributes: dict[str, Any] = {"a": inner}

    def fill(writer: Writer) -> None:
        writer.write("w", data, attributes=attributes)
        data[:] = 9
        with writer.stream("s", (1,), "f32", attributes=attributes) as sink:
            inner.append(object())  # which could not be stored
            attributes["b"] = 2
            sink.write(np.zeros(1, np.float32))

    with ztensor.open(written(fill, attributes=dict(attributes))) as reader:
        assert reader["w"].tolist() == [0, 1, 2, 3]
        assert reader.attributes == {"a": [1]}
        assert [reader.metadata(name).attributes for name in reader] == [{"a": [1]}] * 2


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
def test_large_data_may_be_changed_too(compression: bool) -> None:
    """Hashing and compressing on other threads must not look at it later."""
    data = np.arange(3_000_000)

    def fill(writer: Writer) -> None:
        writer.write("w", data)
        data[:] = 9
        with writer.stream("s", data.shape, data.dtype) as sink:
            sink.write(data)
            data[:] = 8

    with ztensor.open(written(fill, compression=compression, threads=4)) as reader:
        assert reader.verify().ok
        assert reader["w"][2_999_999] == 2_999_999
        assert reader["s"].max() == 9


def test_a_tensors_own_attributes_are_written_unless_others_are_given() -> None:
    tensor = Tensor(FOUR, attributes={"own": 1})

    def fill(writer: Writer) -> None:
        writer.write("a", tensor)
        writer.write("b", tensor, attributes={"other": 2})
        writer.write("c", tensor, attributes={})

    with ztensor.open(written(fill)) as reader:
        assert [dict(reader.metadata(name).attributes) for name in "abc"] == [
            {"own": 1},
            {"other": 2},
            {},
        ]


def test_shared_bytes_are_stored_once() -> None:
    def fill(writer: Writer) -> None:
        writer.write("a", FOUR)
        writer.share("b", "a")
        writer.share("c", "b")
        assert writer.shared == {"b": "a", "c": "a"}
        with pytest.raises(UsageError):
            writer.share("d", "no such")

    with ztensor.open(written(fill)) as reader:
        assert len({reader.location(name) for name in "abc"}) == 1
        assert reader["c"].tolist() == [0, 1, 2, 3]


# --- The end ------------------------------------------------------------------------------------


def tensors(seed: int) -> dict[str, Any]:
    """Large enough for gathered and for direct writes."""
    random = np.random.default_rng(seed)
    return {"big": random.normal(size=200_000), "small": random.normal(size=3), "none": np.zeros(0)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(tensors(0), tmp_path / "m.zt")
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def raising(error: type[BaseException], writes: int) -> Callable[[Writer], None]:
    def fill(writer: Writer) -> None:
        for name, array in list(tensors(1).items())[:writes]:
            writer.write(name, array)
        raise error

    return fill


def stream(writer: Writer, given: int, *, is_closed: bool = True) -> None:
    sink = writer.stream("x", (4,), "f32")
    sink.write(FOUR[:given])
    if is_closed:
        sink.close()


def interrupted_stream(writer: Writer) -> None:
    with writer.stream("x", (4,), "f32"):
        raise ZeroDivisionError


UNFINISHED: dict[str, tuple[Callable[[Writer], object], type[BaseException]]] = {
    "an exception at once": (raising(ZeroDivisionError, 0), ZeroDivisionError),
    "an exception in between": (raising(ZeroDivisionError, 1), ZeroDivisionError),
    "an exception at the end": (raising(ZeroDivisionError, 3), ZeroDivisionError),
    "Ctrl-C": (raising(KeyboardInterrupt, 1), KeyboardInterrupt),
    "an exit": (raising(SystemExit, 1), SystemExit),
    "a stream without its last elements": (lambda writer: stream(writer, 3), UsageError),
    "an open stream": (lambda writer: stream(writer, 4, is_closed=False), UsageError),
    "an interrupted stream": (interrupted_stream, ZeroDivisionError),
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_a_writer_that_is_not_finished_leaves_the_old_file(folder: Path, case: str) -> None:
    fill, error = UNFINISHED[case]
    before = files(folder)
    with pytest.raises(error), Writer(folder / "m.zt") as writer:
        fill(writer)
    assert files(folder) == before
    assert "aborted" in repr(writer)
    target = io.BytesIO()
    with pytest.raises(error), Writer(target) as writer:
        fill(writer)
    with pytest.raises(FormatError):
        ztensor.open(target.getvalue())


def test_a_writer_that_is_forgotten_leaves_the_old_file(folder: Path) -> None:
    before = files(folder)
    writer = Writer(folder / "m.zt")
    writer.write("w", np.zeros(100_000))
    del writer
    gc.collect()
    assert files(folder) == before


class Failing(io.BytesIO):
    """A file whose writes fail."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def write(self, data: Any, /) -> int:
        raise self.error


def large(writer: Writer) -> None:
    writer.write("w", np.zeros(100_000))


def many(writer: Writer) -> None:
    for number in range(33):  # more than is gathered
        writer.write(f"{number}", np.zeros(8000, np.float32))


def end_of_stream(writer: Writer) -> None:
    sink = writer.stream("w", (100_000,), "f64", chunk_rows=10**6)  # compressed at its end
    sink.write(np.random.default_rng(0).normal(size=100_000))
    sink.close()


def piece_of_stream(writer: Writer) -> None:
    writer.stream("w", (100_000,), "f64").write(np.zeros(50_000))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("fill", [large, many, end_of_stream, piece_of_stream])
def test_a_failed_write_aborts_the_writer(
    fill: Callable[[Writer], object], error: BaseException
) -> None:
    writer = Writer(Failing(error), compression=fill is end_of_stream)
    with pytest.raises((SourceError, KeyboardInterrupt)):
        fill(writer)
    for use in (lambda: writer.write("v", FOUR), writer.finish):
        with pytest.raises(ClosedError):
            use()


def test_the_states_of_a_writer(tmp_path: Path) -> None:
    with Writer(tmp_path / "m.zt") as writer:
        assert "open" in repr(writer)
        writer.write("w", FOUR)
        length = writer.finish()
        assert length == (tmp_path / "m.zt").stat().st_size
    writer.abort()  # too late, and without effect
    assert (tmp_path / "m.zt").stat().st_size == length
    for use in (
        writer.finish,
        lambda: writer.write("v", FOUR),
        lambda: writer.stream("v", (1,), "f32"),
        writer.__enter__,
    ):
        with refused(ClosedError, Reason.CLOSED):
            use()
    with Writer(tmp_path / "n.zt") as writer:
        writer.abort()
        writer.abort()
    assert os.listdir(tmp_path) == ["m.zt"]


def test_saving_onto_the_file_the_arrays_are_mapped_from(folder: Path) -> None:
    if os.name == "nt":
        pytest.skip("Windows replaces no mapped file")
    mapped = load_file(folder / "m.zt")
    mapped["small"][0] = 42
    save_file({**mapped, "more": mapped["big"][::-1]}, folder / "m.zt")
    again = load_file(folder / "m.zt")
    assert np.array_equal(again["big"], tensors(0)["big"])
    assert np.array_equal(again["more"], tensors(0)["big"][::-1])
    assert again["small"].tolist() == [42, *tensors(0)["small"][1:]]
    assert np.array_equal(mapped["big"], tensors(0)["big"])  # still the old file's
    save_file(again, folder / "m.zt")
    assert list(files(folder)) == ["m.zt"]


# --- Other targets ------------------------------------------------------------------------------


def test_a_pipe_gets_the_same_bytes() -> None:
    reading, writing = os.pipe()
    received = bytearray()

    def drain() -> None:
        with os.fdopen(reading, "rb") as pipe:
            received.extend(pipe.read())

    thread = threading.Thread(target=drain)
    thread.start()
    with os.fdopen(writing, "wb") as pipe, Writer(pipe) as writer:
        for name, array in sorted(tensors(1).items()):
            writer.write(name, array)
    thread.join()
    assert received == save(tensors(1))


@pytest.mark.parametrize("convert", [str, os.fsencode, Path], ids=["str", "bytes", "Path"])
def test_paths_of_every_kind(tmp_path: Path, convert: Callable[[Path], Any]) -> None:
    with Writer(convert(tmp_path / "m.zt")) as writer:
        writer.write("w", FOUR)
    assert list(load_file(tmp_path / "m.zt")) == ["w"]
