"""An S3 server for tests: moto, in a process of its own that ends when ours does.

    python -m tests.remote.s3_server

prints its port, and runs until its input ends.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from pathlib import Path
from typing import Self
from urllib.parse import quote
from xml.etree import ElementTree

_SECONDS = 30.0
_ROOT = Path(__file__).resolve().parents[2]


class S3Server:
    """moto, and what tests ask it past the library.

    Attributes:
        port: where it listens on loopback.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.remote.s3_server"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def url(self) -> str:
        """Return the address, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def storage(self, url: str | None = None) -> dict[str, str]:
        """Return the options that lead here, or to a proxy before it."""
        return {
            "endpoint": url or self.url,
            "region": "us-east-1",
            "access_key_id": "testing",
            "secret_access_key": "testing",
        }

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask plainly; return the status and the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        # moto detects the service by the credential's scope.
        scope = "testing/20260101/us-east-1/s3/aws4_request"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, Signature=0"}
        try:
            connection.request(method, quote(path, safe="/?&=-_."), body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket; names have three letters or more."""
        status, said = self.ask("PUT", f"/{name}")
        assert status == 200, said

    def put(self, bucket: str, key: str, body: bytes) -> None:
        status, said = self.ask("PUT", f"/{bucket}/{key}", body)
        assert status == 200, said

    def get(self, bucket: str, key: str) -> bytes | None:
        """Return an object's bytes, or None."""
        status, said = self.ask("GET", f"/{bucket}/{key}")
        assert status in (200, 404), said
        return said if status == 200 else None

    def delete(self, bucket: str, key: str) -> None:
        self.ask("DELETE", f"/{bucket}/{key}")

    def keys(self, bucket: str) -> list[str]:
        return self._texts(f"/{bucket}?list-type=2", "Key")

    def uploads(self, bucket: str) -> list[str]:
        """Return the keys of uploads that were begun and neither finished nor given up."""
        return self._texts(f"/{bucket}?uploads", "Key")

    def _texts(self, path: str, tag: str) -> list[str]:
        status, said = self.ask("GET", path)
        assert status == 200, said
        found = ElementTree.fromstring(said).iter()  # noqa: S314  # our own server's
        return [one.text or "" for one in found if one.tag.endswith("}" + tag) or one.tag == tag]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)


def main() -> None:
    """Serve until the input ends."""
    from moto.server import ThreadedMotoServer

    own = sys.stdout
    sys.stdout = sys.stderr  # it greets
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    own.write(f"{port}\n")
    own.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
