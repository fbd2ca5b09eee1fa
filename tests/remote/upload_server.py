"""A store of the protocol that S3 and Google share: it keeps objects that come whole or in parts.

    python -m tests.remote.upload_server

prints its port, and runs until its input ends: for benchmarks, in a process of its own. Signatures
and checksums are ignored: it does as little as it can, so that a benchmark times the client.
Conditions are observed: `If-Match` of a read, `If-None-Match` of a write.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.remote.counting import Handler, Server, serve


class UploadServer(Server):
    """Keeps objects by path.

    Attributes:
        objects: path to the bytes.
        uploads: number of an upload that was begun to its parts, by their numbers.
    """

    def __init__(self) -> None:
        super().__init__(_Store)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.begun = self.puts = 0
        self.tags: dict[str, str] = {}

    def put(self, path: str, body: bytes) -> None:
        """Keep an object, as a new version."""
        self.objects[path] = body
        self.puts += 1
        self.tags[path] = f'"{self.puts}-{len(body)}"'


def _plain(framed: bytes) -> bytes:
    """Return a body out of the frames that signed streams put around its pieces."""
    found: list[bytes] = []
    at = 0
    while True:
        end = framed.index(b"\r\n", at)
        length = int(framed[at:end].split(b";")[0], 16)
        if not length:
            return b"".join(found)
        found.append(framed[end + 2 : end + 2 + length])
        at = end + 2 + length + 2


class _Store(Handler):
    do_PUT = do_POST = do_DELETE = Handler.recorded

    def respond(self, owner: UploadServer) -> None:
        is_framed = "x-amz-decoded-content-length" in self.headers
        body = _plain(self.taken) if is_framed else self.taken
        parts = urlsplit(self.path)
        path, asked = unquote(parts.path), parse_qs(parts.query, keep_blank_values=True)
        upload = owner.uploads.get(asked.get("uploadId", [""])[0])
        if self.command == "POST" and "uploads" in asked:
            owner.begun += 1
            owner.uploads[str(owner.begun)] = {}
            self._say(f"<InitiateMultipartUploadResult><UploadId>{owner.begun}</UploadId>"
                      "</InitiateMultipartUploadResult>")  # fmt: skip
        elif self.command == "PUT" and upload is not None:
            upload[int(asked["partNumber"][0])] = body
            self.answer(200, {"ETag": f'"{len(body)}"'})
        elif self.command == "POST" and upload is not None:
            owner.put(path, b"".join(upload[number] for number in sorted(upload)))
            del owner.uploads[asked["uploadId"][0]]
            self._say('<CompleteMultipartUploadResult><ETag>"1"</ETag>'
                      "</CompleteMultipartUploadResult>")  # fmt: skip
        elif self.command == "PUT" and "x-amz-copy-source" in self.headers:
            source = unquote(self.headers["x-amz-copy-source"])
            owner.put(path, owner.objects["/" + source.lstrip("/")])
            self._say('<CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>')
        elif self.command == "PUT" and path in owner.objects and self._is_new():
            self.answer(412, {})
        elif self.command == "PUT":
            owner.put(path, body)
            self.answer(200, {"ETag": owner.tags[path]})
        elif self.command == "POST" and "delete" in asked:
            keys = [key.decode() for key in re.findall(rb"<Key>(.*?)</Key>", body)]
            for key in keys:
                owner.objects.pop(f"{path.rstrip('/')}/{key}", None)
            gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._say(f"<DeleteResult>{gone}</DeleteResult>")
        elif self.command == "DELETE" and "uploadId" in asked:
            owner.uploads.pop(asked["uploadId"][0], None)
            self.answer(204, {})
        elif self.command == "DELETE":
            owner.objects.pop(path, None)
            self.answer(204, {})
        elif "list-type" in asked or path.count("/") < 2:
            self._list(owner, path.strip("/"), asked.get("prefix", [""])[0])
        else:
            self._send(owner.objects.get(path), owner.tags.get(path, ""))

    def _list(self, owner: UploadServer, bucket: str, prefix: str) -> None:
        start = f"/{bucket}/"
        entries = "".join(
            f"<Contents><Key>{quote(path[len(start) :])}</Key><Size>{len(body)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for path, body in sorted(owner.objects.items())
            if path.startswith(start + prefix)
        )
        self._say(f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>")

    def _is_new(self) -> bool:
        conditions = (
            self.headers.get("If-None-Match"),
            self.headers.get("x-goog-if-generation-match"),
        )
        return conditions[0] == "*" or conditions[1] == "0"

    def _send(self, body: bytes | None, tag: str) -> None:
        if body is None:
            self.answer(404, {})
            return
        if self.headers.get("If-Match", tag) != tag:
            self.answer(412, {})
            return
        size = len(body)
        headers = {"ETag": tag, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        asked = self.asked(size)
        if asked is not None:
            body = body[slice(*asked)]
            headers["Content-Range"] = f"bytes {asked[0]}-{asked[1] - 1}/{size}"
        headers["Content-Length"] = str(len(body))
        self.answer(200 if asked is None else 206, headers, body)

    def _say(self, text: str) -> None:
        self.answer(200, {"Content-Type": "application/xml"}, text.encode())


if __name__ == "__main__":
    serve(UploadServer())
