"""Save, list, slice, load and convert a model in an S3 bucket, on a server that is started here.

python examples/remote_model.py      needs obstore and moto[s3,server]
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import ztensor
from ztensor.numpy import load_file, save_file

# A server of its own process, with an empty bucket; it ends when its input does.
SERVER = """
import sys, boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
greeting, sys.stdout = sys.stdout, sys.stderr
server.start()
url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
keys = dict(aws_access_key_id="testing", aws_secret_access_key="testing")
client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
client.create_bucket(Bucket="models")
print(url, file=greeting, flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Give the address of the server."""
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603  # this Python, with the text above
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(10)


def interrupted(model: Any, weight: Any) -> None:
    """Save, until someone presses a key."""
    with ztensor.Writer(model) as writer:
        writer.write("embed", weight)
        raise KeyboardInterrupt


def main(address: str) -> None:
    # With AWS_ENDPOINT_URL and the keys in the environment, "s3://models/model.zt" is enough.
    storage = {
        "endpoint": address,
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
    }
    model = ztensor.Remote("s3://models/model.zt", storage)
    other = ztensor.Remote("s3://models/model.safetensors", storage)

    tensors = {
        "embed": np.arange(20_000 * 256, dtype=np.float32).reshape(20_000, 256),
        "head": np.ones((256, 1000), np.float16),
    }
    save_file(tensors, model)
    print("saved")

    with ztensor.open(model) as reader:
        for name in reader:
            found = reader.metadata(name)
            print(f"  {name:6} {found.shape!s:13} {found.dtype}")
        rows = reader.get_slice("embed")[12_345:12_348]
    print(
        "three rows:", "equal" if (rows == tensors["embed"][12_345:12_348]).all() else "DIFFERENT"
    )

    loaded = load_file(model)
    same = all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    print("all of it:", "equal" if same else "DIFFERENT")

    report = ztensor.convert(model, other)  # a few MiB of it are in memory at a time
    print(f"converted: {report.path}, {report.objects} objects, lossless: {report.is_lossless}")

    # What fails leaves the old object, and nothing half.
    try:
        interrupted(model, tensors["embed"] + 1)
    except KeyboardInterrupt:
        kept = load_file(model)["embed"][0, 0] == 0
        print("interrupted:", "the old model is there" if kept else "DIFFERENT")

    # A reader never mixes two versions.
    with ztensor.open(model) as reader:
        save_file({"embed": tensors["embed"] + 1}, model)
        try:
            reader["embed"]
        except ztensor.SourceError as error:
            print(f"replaced while open: {error.reason}")


if __name__ == "__main__":
    with s3_server() as url:
        main(url)
