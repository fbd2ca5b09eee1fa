"""Find, check and open the shards of a 2.x file, and join them to one source.

The format does not define paths, and shard names are not paths. Here, shard `n` of `<stem>.zt` is
the file that the caller's resolver returns, or `<stem>-<n>.zt` in the same folder, or
`blobs/<algorithm>/<hex>` there, by its digest, or any file there of its size and digest. Only
shards with a component are opened.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ztensor.accepted import Path, Resolver, ShardIdentity
from ztensor.errors import (
    ArgumentTypeError,
    ContainerError,
    Reason,
    SourceError,
    SourceNotFoundError,
    UnsupportedError,
    ZTensorError,
    describe,
    system_call,
)
from ztensor.io.reading.file import FileObjects
from ztensor.io.source.base import Range, Source
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.joined import JoinedSource
from ztensor.io.source.paths import path_text
from ztensor.io.source.stores import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import Limits
from ztensor.spec.container.framing import MAGIC_2, Container
from ztensor.spec.digest import Digest, parse_digest
from ztensor.spec.model.manifest import Shard

SECTION = "2.1 section 7.3"
_BYTES = 1 << 20  # read at a time for a digest


class ShardFolder:
    """Finds shards among the files of a folder by size and digest, whatever their names.

    A resolver for the option `resolver` of `ztensor.open`. The folder is listed once, here. Files
    of 2.x of a shard's exact size are read, each once, for their digests. Hidden and temporary
    files, links out of the folder and files that cannot be read are passed over, and subfolders are
    not searched. A shard with a digest of an unknown algorithm is not found.

    Args:
        folder: a folder on disk.

    Raises:
        SourceError: the folder cannot be listed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = path_text(folder, absolute=True, local=True)
        self._names: dict[int, list[str]] = {}
        # Files by size, algorithm and digest; how many names of a size were read for them.
        self._found: dict[tuple[int, str, str | None], Beneath] = {}
        self._read: dict[tuple[int, str], int] = {}
        self._roots = Beneath.roots_of(self._folder)
        with system_call("cannot list the folder", self._folder), os.scandir(self._folder) as files:
            for file in sorted(files, key=lambda file: file.name):
                if not file.name.startswith(".") and not file.name.endswith(".tmp"):
                    with contextlib.suppress(OSError):  # a link to nothing
                        self._names.setdefault(file.stat().st_size, []).append(file.name)

    def __call__(self, shard: ShardIdentity) -> Beneath | None:
        """Return the place of a shard; None if no file has its size and digest."""
        digest = parse_digest(shard.digest, strict=True)
        kind = shard.size, digest.algorithm
        names = self._names.get(shard.size, ()) if digest.known else ()
        while (found := self._found.get((*kind, digest.expected))) is None:
            if (at := self._read.get(kind, 0)) == len(names):
                return None
            place = Beneath(os.path.join(self._folder, names[at]), self._roots)
            self._found.setdefault((*kind, _hexdigest(place, digest)), place)
            self._read[kind] = at + 1
        return found


def _hexdigest(place: Beneath, digest: Digest) -> str | None:
    """Return the digest of a file by the algorithm of another one; None if it is not of 2.x."""
    with contextlib.suppress(ZTensorError), contextlib.closing(place.open(mapped=False)) as source:
        if digest.known and bytes(source.read(0, len(MAGIC_2))) == MAGIC_2:
            text = digest.known.of(Range(source, 0, source.size).pieces(_BYTES))
            return parse_digest(text).expected
    return None


def join_shards(
    root: Source, shards: Mapping[str, Shard], limits: Limits, resolver: Resolver | None = None
) -> Source:
    """Return one source over a file and the shards that its objects need.

    Args:
        root: the file; closed if this raises.
        shards: the shards that its manifest names.
        limits: the caps in force.
        resolver: see `ztensor.typing.FileOptions`.

    Raises:
        ContainerError: a shard is missing, has another size, or is not a file of 2.x.
        UnsupportedError: the file was opened without a path and no resolver has the shard, or a
            link leads out of its folder.
        ArgumentTypeError: the resolver returns another type.
        SourceError: a shard cannot be read.
    """
    parts: list[tuple[int, Source]] = [(0, root)]
    needed = sorted((s.start, s.name, s) for s in shards.values() if s.start is not None)
    folder = functools.cache(ShardFolder)  # listed once, and only if a shard is looked for there
    try:
        for start, _, shard in needed:
            resolved = None if resolver is None else resolver(shard)
            if resolved is None:
                source = _found(root, shard, limits, folder)
            else:
                source = _fit(_source_of(resolved), shard, limits)
            parts.append((start, source))
    except BaseException:
        for _, source in parts:
            source.close()
        raise
    return JoinedSource(parts) if needed else root


def _found(
    root: Source, shard: Shard, limits: Limits, folder: Callable[[str], ShardFolder]
) -> Source:
    """Return the first file in the usual places that is the shard."""
    path = root.path if root.remote is None else root.name
    if path is None:
        raise UnsupportedError(
            "the file has shards, which are found by its path: open it by its path, or with the "
            "option resolver",
            reason=Reason.SHARD_FILE,
            file=root.name,
            found=f"the shard {describe(shard.name)}",
        )
    wrong: ZTensorError | None = None
    for place in _places(path, root.remote, shard, folder):
        try:
            return _fit(source_of(place, mapped=False), shard, limits)
        except SourceNotFoundError:
            continue
        except ZTensorError as error:
            wrong = wrong or error
    expected = os.path.basename(path).removesuffix(".zt") + f"-{shard.name}.zt"
    searched = "" if root.remote else f", or any of {shard.size} bytes and {shard.digest[:80]}"
    missing = wrong or _unfit(
        "missing shard",
        file=path,
        expected=f"{describe(expected)} in the same folder, or a file of `blobs` named by digest"
        + searched,
        found="no such file",
    )
    missing.in_python = missing.in_python or "resolver= of ztensor.open names another place"
    try:
        raise missing
    finally:
        del wrong, missing  # their tracebacks would form a cycle with this frame


def _places(
    path: str, remote: Remote | None, shard: Shard, folder: Callable[[str], ShardFolder]
) -> Iterator[Beneath | Remote]:
    """Yield the places where the shard may be."""
    stem = os.path.basename(path).removesuffix(".zt")
    digest = parse_digest(shard.digest, strict=True)
    for place in (f"{stem}-{shard.name}.zt",), ("blobs", digest.algorithm, digest.expected):
        # Digests may have any length; file names have at most 255 bytes.
        if len(os.fsencode(place[-1])) <= 255:
            yield remote.beside("/".join(place)) if remote else Beneath.beside(path, place)
    if remote is None:
        with contextlib.suppress(SourceError):  # a folder that cannot be listed
            if (found := folder(os.path.dirname(path))(shard)) is not None:
                yield found


def _source_of(resolved: Any) -> Source:
    """Return the source of a resolver's answer."""
    try:
        return source_of(resolved, mapped=False)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            "the resolver returned something else than a shard",
            expected="a path, a URL, bytes, a seekable binary file object, or None",
            found=describe(resolved, 40),
        ) from error


def _fit(source: Source, shard: Shard, limits: Limits) -> Source:
    """Return an opened file if it is the shard; close it and raise otherwise."""
    with contextlib.ExitStack() as opened:
        opened.callback(source.close)
        expected, found = f"a file of 2.x of {shard.size} bytes", f"{source.size} bytes"
        if source.size == shard.size:
            container = FileObjects.frame_in(source, limits).container
            if container is Container.V2:
                opened.pop_all()
                return source
            found = f"a file of {container.value}"
        facts = {"file": source.name, "expected": expected, "found": found}
        raise _unfit("the shard is another file", **facts)


def _unfit(message: str, **details: str) -> ContainerError:
    return ContainerError(message, reason=Reason.SHARD_FILE, section=SECTION, **details)
