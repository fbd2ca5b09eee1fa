"""Find, check and open the shards of a 2.x file, and join them to one source.

The format does not define paths, and shard names are not paths. Here, shard `n` of `<stem>.zt` is
`<stem>-<n>.zt` in the same folder, or `blobs/<algorithm>/<hex>` there, by its digest. Only shards
with a component are opened.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.errors import (
    ContainerError,
    Reason,
    SourceNotFoundError,
    UnsupportedError,
    ZTensorError,
    describe,
)
from ztensor.io.reading.file import FileObjects
from ztensor.io.source.base import Source
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.joined import JoinedSource
from ztensor.io.source.stores import open_url
from ztensor.limits import Limits
from ztensor.spec.container.framing import Container
from ztensor.spec.digest import parse_digest
from ztensor.spec.model.manifest import Shard

if TYPE_CHECKING:
    from collections.abc import Mapping


SECTION = "2.1 section 7.3"


def join_shards(root: Source, shards: Mapping[str, Shard], limits: Limits) -> Source:
    """Return one source over a file and the shards that its objects need.

    Args:
        root: the file; closed if this raises.
        shards: the shards that its manifest names.
        limits: the caps in force.

    Raises:
        ContainerError: a shard is missing, has another size, or is not a file of 2.x.
        UnsupportedError: the file was opened without a path, or a link leads out of its folder.
        SourceError: a shard cannot be read.
    """
    parts: list[tuple[int, Source]] = [(0, root)]
    needed = sorted((s.start, s.name, s) for s in shards.values() if s.start is not None)
    try:
        for start, _, shard in needed:
            parts.append((start, _open(root, shard, limits)))
    except BaseException:
        for _, source in parts:
            source.close()
        raise
    return JoinedSource(parts) if needed else root


def _places(path: str, shard: Shard) -> list[tuple[str, ...]]:
    stem, digest = (
        os.path.basename(path).removesuffix(".zt"),
        parse_digest(shard.digest, strict=True),
    )
    places = (f"{stem}-{shard.name}.zt",), ("blobs", digest.algorithm, digest.expected)
    # Digests may have any length; file names have at most 255 bytes.
    return [place for place in places if len(os.fsencode(place[-1])) <= 255]


def _open(root: Source, shard: Shard, limits: Limits) -> Source:
    path = root.path if root.remote is None else root.name
    if path is None:
        raise UnsupportedError(
            "the file has shards, which are found by its path: open it by its path",
            reason=Reason.SHARD_FILE,
            file=root.name,
            found=f"the shard {describe(shard.name)}",
        )
    wrong: ZTensorError | None = None
    for place in _places(path, shard):
        try:
            if root.remote is None:
                source: Source = Beneath.beside(path, place).open(mapped=False)
            else:
                source = open_url(root.remote.beside("/".join(place)))
        except SourceNotFoundError:
            continue
        try:
            _require_shard(source, shard, limits)
        except ZTensorError as error:
            source.close()
            wrong = wrong or error.locate(file=source.name)
        else:
            return source
    expected = os.path.basename(path).removesuffix(".zt") + f"-{shard.name}.zt"
    raise wrong or _unfit(
        "missing shard",
        file=path,
        expected=f"{describe(expected)} in the same folder, or a file of `blobs` named by digest",
        found="no such file",
    )


def _require_shard(source: Source, shard: Shard, limits: Limits) -> None:
    actual = f"{source.size} bytes"
    if source.size == shard.size:
        container = FileObjects.frame_in(source, limits).container
        if container is Container.V2:
            return
        actual = f"a file of {container.value}"
    expected = f"a file of 2.x of {shard.size} bytes"
    raise _unfit("the shard is another file", expected=expected, found=actual)


def _unfit(message: str, **details: str) -> ContainerError:
    return ContainerError(message, reason=Reason.SHARD_FILE, section=SECTION, **details)
