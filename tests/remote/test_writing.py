"""Writing to S3: streamed, atomic, between places, by every function and verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ztensor
from ztensor.errors import SourceError, UsageError
from ztensor.numpy import load_file, save_file

if TYPE_CHECKING:
    from tests.remote.conftest import Variables
    from tests.remote.fault_proxy import FaultProxy
    from tests.remote.s3_server import S3Server
    from tests.unit.cli.conftest import Run

MIB = 1 << 20
RNG = np.random.default_rng(16)
MODEL = {
    "embed": RNG.normal(size=(400, 512)).astype(np.float32),
    "head": RNG.normal(size=(512, 700)).astype(np.float32),
    "bias": np.arange(7.0),
    "tied": np.ones((3, 4), np.float16),
}


@pytest.fixture
def at(bucket: str, proxy: FaultProxy, variables: Variables) -> str:
    """Give the URL of a bucket that the environment leads to, through the proxy."""
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing")
    variables({"AWS_ENDPOINT_URL": proxy.url, **keys})
    return f"s3://{bucket}"


def require_model(url: str, model: dict[str, np.ndarray] = MODEL) -> None:
    found = load_file(url)
    assert set(found) == set(model)
    for name, value in model.items():
        assert (found[name] == value).all(), name


def require_set(url: str, s3: S3Server, model: dict[str, np.ndarray] = MODEL) -> None:
    """Compare an index and its shards with a model, shard by shard."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    text = s3.get(bucket, key)
    assert text is not None, key
    weight_map = json.loads(text)["weight_map"]
    assert set(weight_map) == set(model)
    for name, file in weight_map.items():
        with ztensor.open(f"{url.rpartition('/')[0]}/{file}") as shard:
            assert (shard[name] == model[name]).all(), name


@pytest.mark.parametrize("suffix", ["zt", "safetensors", "npz", "gguf"])
def test_every_format_is_saved_to_a_url(at: str, s3: S3Server, bucket: str, suffix: str) -> None:
    save_file(MODEL, f"{at}/a/model.{suffix}")
    require_model(f"{at}/a/model.{suffix}")
    assert s3.uploads(bucket) == []


@pytest.mark.slow
def test_the_same_bytes_as_on_disk(
    at: str, s3: S3Server, bucket: str, tmp_path: Path, proxy: FaultProxy
) -> None:
    model = {**MODEL, "large": np.arange(4 * MIB)}
    save_file(model, tmp_path / "m.zt")
    proxy.record.clear()
    save_file(model, f"{at}/m.zt")
    assert s3.get(bucket, "m.zt") == (tmp_path / "m.zt").read_bytes()
    length = (tmp_path / "m.zt").stat().st_size
    assert len(proxy.record) <= -(-length // (16 * MIB)) + 3


def test_frameworks_and_the_writer(at: str) -> None:
    torch = pytest.importorskip("torch")
    from ztensor.torch import load_file as load_torch
    from ztensor.torch import save_file as save_torch
    from ztensor.torch import save_model

    save_torch({"w": torch.arange(6.0)}, f"{at}/t.zt")
    assert load_torch(f"{at}/t.zt")["w"].tolist() == [0, 1, 2, 3, 4, 5]
    save_model(torch.nn.Linear(2, 3), f"{at}/l.zt")
    assert set(load_torch(f"{at}/l.zt")) == {"weight", "bias"}
    with ztensor.Writer(f"{at}/w.zt", compression=True) as writer:
        writer.write("a", np.zeros(MIB))
        with writer.stream("rows", (100, 10), "float32") as rows:
            for _ in range(100):
                rows.write(np.ones((1, 10), np.float32))
    with ztensor.open(f"{at}/w.zt") as reader:
        assert reader.verify().ok
        assert reader["rows"].sum() == 1000


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_overwrite(at: str, s3: S3Server, bucket: str, large: bool) -> None:
    save_file({"a": np.zeros(3 * MIB if large else 2)}, f"{at}/m.zt")
    for call in (
        lambda: ztensor.convert(f"{at}/m.zt", f"{at}/out.zt", overwrite=False),
        lambda: ztensor.convert(f"{at}/m.zt", f"{at}/out.zt", check=True),  # it never replaces
        lambda: ztensor.merge([f"{at}/m.zt"], f"{at}/out.zt", overwrite=False),
        lambda: ztensor.migrate(f"{at}/m.zt", f"{at}/out.zt", version="1.1.0", overwrite=False),
    ):
        s3.put(bucket, "out.zt", b"precious")
        with pytest.raises(UsageError, match="exists already"):
            call()
        assert s3.get(bucket, "out.zt") == b"precious"
        s3.delete(bucket, "out.zt")
        call()
        require_model(f"{at}/out.zt", {"a": np.zeros(3 * MIB if large else 2)})


# --- Several files ----------------------------------------------------------------------------


@pytest.mark.slow
def test_shards_appear_with_their_index(at: str, s3: S3Server, bucket: str) -> None:
    save_file(MODEL, f"{at}/run/model.zt", max_shard_size="1MB")
    first = s3.keys(bucket)
    assert "run/model.zt.index.json" in first
    assert len(first) == 4
    require_set(f"{at}/run/model.zt.index.json", s3)
    changed = {**MODEL, "bias": np.arange(7.0) + 1}
    save_file(changed, f"{at}/run/model.zt", max_shard_size="1MB")
    second = s3.keys(bucket)
    assert len(second) == 4
    assert set(second) & set(first) == {"run/model.zt.index.json"}, "no shard is written over"
    require_set(f"{at}/run/model.zt.index.json", s3, changed)
    save_file(MODEL, f"{at}/run/model.zt", max_shard_size="1GB")
    assert s3.keys(bucket) == ["run/model.zt"]
    require_model(f"{at}/run/model.zt")
    ztensor.convert(f"{at}/run/model.zt", f"{at}/run/model.zt", max_shard_size="1MB", to="zt")


@pytest.mark.slow
def test_a_file_is_split_into_a_folder_of_a_store(
    at: str, s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    save_file(MODEL, tmp_path / "model.zt")
    written = ztensor.split(tmp_path / "model.zt", f"{at}/run", max_shard_size="1MB")
    assert written[-1] == f"{at}/run/model.zt.index.json"
    assert sorted(written) == [f"{at}/{key}" for key in s3.keys(bucket)]
    require_set(written[-1], s3)
    ztensor.convert(tmp_path / "model.zt", f"{at}/c.safetensors", max_shard_size="1MB")
    require_set(f"{at}/c.safetensors.index.json", s3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 9))
def test_a_save_of_shards_that_fails_leaves_the_old_set(
    at: str, s3: S3Server, bucket: str, proxy: FaultProxy, number: int
) -> None:
    from tests.remote.fault_proxy import Fault

    save_file(MODEL, f"{at}/model.zt", max_shard_size="1MB")
    before = s3.keys(bucket)
    changed = {**MODEL, "bias": np.arange(7.0) + 1}
    proxy.faults = [Fault("403", first=number)]
    failed = False
    try:
        save_file(changed, f"{at}/model.zt", max_shard_size="1MB")
    except SourceError:
        failed = True
    proxy.faults = []
    text = s3.get(bucket, "model.zt.index.json")
    assert text is not None
    is_old = set(json.loads(text)["weight_map"].values()) <= set(before)
    require_set(f"{at}/model.zt.index.json", s3, MODEL if is_old else changed)
    assert is_old or failed or number > 6
    if is_old:
        assert s3.keys(bucket) == before, "nothing is left of the save that failed"


# --- Edits ------------------------------------------------------------------------------------

EDITS = {
    "append": lambda url, file: ["append", url, file],
    "replace": lambda url, file: ["replace", url, "bias", file],
    "rm": lambda url, file: ["rm", url, "bias"],
    "mv": lambda url, file: ["mv", url, "bias", "b"],
    "set": lambda url, file: ["set", url, "key=1"],
    "compact": lambda url, file: ["compact", url],
    "repair": lambda url, file: ["repair", url, "--in-place"],
    "convert": lambda url, file: ["convert", url, "--in-place", "--version", "1.1.0"],
}


@pytest.mark.parametrize("verb", EDITS)
def test_a_change_in_place_is_refused_with_what_to_do(
    at: str, s3: S3Server, bucket: str, tmp_path: Path, run: Run, verb: str
) -> None:
    save_file(MODEL, f"{at}/m.zt")
    before = s3.get(bucket, "m.zt")
    save_file({"bias": np.zeros(7)}, tmp_path / "new.zt")
    ended = run(*EDITS[verb](f"{at}/m.zt", str(tmp_path / "new.zt")))
    said = " ".join(ended.err.split())
    assert ended.code == 2, said
    assert "never changed in its place" in said
    assert "ztensor convert" in said
    assert s3.get(bucket, "m.zt") == before


@pytest.mark.slow
def test_verbs_write_to_urls(at: str, s3: S3Server, run: Run) -> None:
    save_file(MODEL, f"{at}/m.zt")
    for arguments in (
        ["convert", f"{at}/m.zt", f"{at}/c.safetensors"],
        ["convert", f"{at}/m.zt", f"{at}/e.npz"],
        ["convert", f"{at}/m.zt", f"{at}/small.zt", "--compression", "zstd"],
        ["merge", f"{at}/m.zt", "-o", f"{at}/merged.zt"],
        ["convert", f"{at}/m.zt", f"{at}/old.zt", "--version", "1.1.0"],
        ["split", f"{at}/m.zt", "--into", f"{at}/parts", "--max-shard-size", "1MB"],
    ):
        assert [run(*arguments).code for _ in range(2)] == [0, 2], arguments  # it is there then
    for key in ("c.safetensors", "e.npz", "small.zt", "merged.zt", "old.zt"):
        require_model(f"{at}/{key}")
    require_set(f"{at}/parts/m.zt.index.json", s3)


@pytest.mark.slow
def test_a_pattern_of_a_store_means_many_files(
    at: str, s3: S3Server, bucket: str, run: Run
) -> None:
    keys = ["run/a.zt", "run/1/b.zt", "run/1/2/c.zt", "run/d.txt", "other/e.zt"]
    save_file({"w": np.arange(3)}, f"{at}/run/a.zt")
    body = s3.get(bucket, "run/a.zt")
    assert body is not None
    for key in keys:
        s3.put(bucket, key, body)
    for pattern, expected in (
        ("run/**/*.zt", keys[:3]),
        ("run/*.zt", keys[:1]),
        ("run/[1-9]/?.zt", keys[1:2]),
        ("**/e.zt", keys[4:]),
    ):
        ended = run("verify", f"{at}/{pattern}")
        assert ended.code == 0
        assert {key for key in keys if f"{at}/{key}:" in ended.out} == set(expected), ended.out
    ended = run("verify", f"{at}/run/*.none")
    assert ended.code != 0
    assert "no object matches" in ended.err
    s3.put(bucket, "run/1/b.zt", body[:-60] + bytes(20) + body[-40:])
    assert run("verify", f"{at}/run/**/*.zt").code != 0
