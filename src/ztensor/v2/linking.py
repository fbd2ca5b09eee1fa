"""Shards of a new file: other files of 2.x, and the ranges of their bytes that it refers to.

No byte of them is copied. Each is known by its size and its digest (2.1 section 7), and the rules
of blobs hold in each (2.1 section 2.4).
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotRepresentableError,
    ObjectNotFoundError,
    Problem,
    UsageError,
    describe,
)
from ztensor.ext import (
    ALGORITHMS,
    EMITTERS,
    LAYOUTS,
    FileObjects,
    JoinedSource,
    Manifest,
    Range,
    TensorObject,
    open_file,
)
from ztensor.options import require_choice

ALIGNMENT = 65536
_PAGE, _FOOTER_BYTES = 4096, 40
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}"


class Shards:
    """The shards of one file that is being written, open until `close`."""

    def __init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self._files: dict[str, FileObjects] = {}
        self._table = Manifest("2", {}).shards
        self._end = 0
        # Offsets and lengths of the referenced blobs of each shard, ascending.
        self._blobs: dict[str, list[tuple[int, int]]] = {}

    def add(
        self, name: str, path: str, algorithm: str, *, target: str, taken: Container[str]
    ) -> None:
        """Open a file, and read it once for its digest.

        Args:
            name: its name in the table.
            path: its path or URL.
            algorithm: of its digest.
            target: path of the new file.
            taken: names of other shards in its table.

        Raises:
            ArgumentValueError: the name or algorithm is invalid, or the file is not of 2.x.
            UsageError: the name is taken, or the file is the target.
            ZTensorError: the file cannot be read, or is damaged.
        """
        require_choice("algorithm", algorithm, EMITTERS.named("2.1").form.checksums)
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise ArgumentValueError(
                "the name of a shard is invalid",
                expected="1 to 64 of A-Z a-z 0-9 . _ -, no dot first",
                found=describe(name),
            )
        if name in self._table or name in taken:
            raise UsageError("the name of a shard is taken", file=target, found=describe(name))
        if os.path.exists(path) and os.path.exists(target) and os.path.samefile(path, target):
            raise UsageError("a file cannot be its own shard; choose another name", file=target)
        file = self._opened.enter_context(contextlib.closing(open_file(path, mmap=False)))
        if file.format != "zt" or file.version != "2":
            raise ArgumentValueError(
                "a shard is a file of 2.x; convert it, with version='2.1'",
                file=file.name,
                found=f"{file.format} {file.version}",
            )
        _, source = file.source.parts[0]
        digest = ALGORITHMS[algorithm].of(Range(source, 0, source.size).pieces())
        shard = Manifest("2", {}).joined(name, source.size, digest, {}).shards[name]
        self._files[name], self._blobs[name] = file, []
        self._table = {**self._table, name: shard._replace(start=self._end)}
        self._end += -(-source.size // _PAGE) * _PAGE

    def linked(self, shard: str, names: Iterable[str] | None) -> FileObjects:
        """Return objects of a shard (None: all), each part a reference.

        Raises:
            ObjectNotFoundError: the shard has no object of a name.
            ArgumentValueError: an object is not in the shard itself, or breaks a rule of blobs.
        """
        file, found = self._file(shard), {}
        for name in file.names if names is None else names:
            entry = file.object(name)
            places = {role: (shard, part.offset) for role, part in entry.components.items()}
            if any(part.shard is not None for part in entry.components.values()):
                raise ArgumentValueError(
                    "the object is in a shard of the shard; link that file",
                    file=file.name,
                    object_name=name,
                )
            found[name] = self._placed(name, entry, places)
        return self._over(found)

    def external(
        self,
        name: str,
        shape: Sequence[int],
        parts: Mapping[str, Mapping[str, Any]],
        layout: str,
        attributes: Mapping[str, Any] | None,
    ) -> FileObjects:
        """Return one object; its parts are ranges of shards.

        Args:
            name: its name.
            shape: its shape.
            parts: as for `Writer.add_object`, with `external` instead of `data`.
            layout: its layout.
            attributes: its attributes.

        Raises:
            ArgumentTypeError: a range has another form.
            ArgumentValueError: readers would refuse the object.
            ObjectNotFoundError: no such shard.
        """
        places, sizes = {}, {}
        for role, part in parts.items():
            match part.get("external"):
                case (str(shard), int(start), int(end)) if 0 <= start <= end and "data" not in part:
                    places[role], sizes[role] = (shard, start), end - start
                case other:
                    raise ArgumentTypeError(
                        "either all parts of an object are data, or all are external",
                        object_name=name,
                        component=role,
                        expected="external=(shard, first byte, end)",
                        found=describe(other),
                    )
        stored = "encoding", "decoded_length", "digest"
        entry = object_of(name, shape, parts, sizes, layout, attributes, stored)
        return self._over({name: self._placed(name, entry, places)})

    def close(self) -> None:
        """Close the files. May be called again."""
        self._opened.close()

    def _file(self, shard: str) -> FileObjects:
        if shard not in self._files:
            raise ObjectNotFoundError("no such shard was added", found=describe(shard))
        return self._files[shard]

    def _over(self, objects: Mapping[str, TensorObject]) -> FileObjects:
        """Return objects over the shards that they need: others cost time for each call."""
        homes = {
            part.shard.name: part.shard
            for entry in objects.values()
            for part in entry.components.values()
            if part.shard is not None
        }
        parts = sorted((shard.start or 0, name) for name, shard in (homes or self._table).items())
        joined = JoinedSource([(at, self._files[name].source.parts[0][1]) for at, name in parts])
        return FileObjects(joined, Manifest("2", objects, shards=self._table))

    def _placed(
        self, name: str, entry: TensorObject, places: Mapping[str, tuple[str, int]]
    ) -> TensorObject:
        """Return an object with each part at an offset of a shard, raw parts with a digest."""
        components = {}
        for role, (shard, offset) in places.items():
            part = entry.components[role]
            self._require_blob(name, role, shard, (offset, part.length))
            home = self._table[shard]
            if part.digest is None and part.encoding == "raw":
                pieces = Range(self._files[shard].source, offset, part.length).pieces()
                part = part._replace(digest=ALGORITHMS["xxh3"].of(pieces))
            components[role] = part._replace(offset=(home.start or 0) + offset, shard=home)
        return entry._replace(components=components)

    def _require_blob(self, name: str, role: str, shard: str, blob: tuple[int, int]) -> None:
        """Raise if a blob breaks a rule of 2.1 section 2.4; else note it."""
        (offset, length), limit = blob, self._file(shard).source.parts[0][1].size - _FOOTER_BYTES
        blobs = self._blobs[shard]
        at = bisect.bisect_left(blobs, blob)
        near = blobs[max(at - 1, 0) : at + 1] if length else []
        expected = None
        if offset % _PAGE or offset < _PAGE:
            expected = f"an offset that is a multiple of {_PAGE}, and not 0"
        elif offset + length > limit:
            expected = f"an end of at most {limit}, before the shard's footer"
        for start, count in near:
            if (start, count) != blob and start < offset + length and offset < start + count:
                expected = f"a range equal to bytes {start} to {start + count}, or apart from them"
        if expected is not None:
            raise ArgumentValueError(
                f"the range is not a blob of the shard {describe(shard)}",
                object_name=name,
                component=role,
                expected=expected,
                found=f"{offset} to {offset + length}",
                section="2.1 section 2.4",
            )
        if length and blob not in near:
            blobs.insert(at, blob)


def object_of(
    name: str,
    shape: Sequence[int],
    parts: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, int],
    layout: str,
    attributes: Mapping[str, Any] | None,
    stored: Sequence[str] = (),
) -> TensorObject:
    """Return the object as readers will parse it, with a placeholder for its parts' places.

    Args:
        name: its name.
        shape: its shape.
        parts: as for `Writer.add_object`.
        sizes: bytes of each part.
        layout: its layout.
        attributes: its attributes.
        stored: further keys of parts that are words of the format.

    Raises:
        ArgumentValueError: readers would refuse the object.
    """
    words = {
        role: {"dtype": part.get("dtype"), "blob": (ALIGNMENT, sizes[role])}
        | ({} if part.get("logical") is None else {"type": part["logical"]})
        | {word: part[word] for word in stored if part.get(word) is not None}
        for role, part in parts.items()
    }
    entry = {"shape": list(shape), "layout": layout, "parts": words}
    if attributes is not None:
        entry["attributes"] = dict(attributes)
    try:
        parsed = EMITTERS.named("2.1").object_of(entry)
    except NotRepresentableError as error:
        raise _refusal(name, error) from error
    known = LAYOUTS.get(parsed.format)
    for problem in known.check_object(parsed) if known else ():
        raise _refusal(name, problem)
    return parsed


def _refusal(name: str, cause: NotRepresentableError | Problem) -> ArgumentValueError:
    facts: Any = {"object_name": name, "component": cause.component, "section": cause.section}
    return ArgumentValueError(cause.message, **facts)
