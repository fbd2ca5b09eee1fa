"""Options of conversions and their checks: formats, patterns of names, shards, compression."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentTypeError, ArgumentValueError, counted, describe
from ztensor.ext import EMITTERS, FORMATS
from ztensor.options import keeps, require_nothing_of_zt
from ztensor.typing import Durable, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The options of one conversion; see `ztensor.typing.ConvertOptions`.

    Attributes:
        makes_folder: the caller makes the target's folder, so a dry run does not miss it.
        keeps_all: an object or attribute that a `.zt` cannot hold is an error. Less than `strict`,
            which refuses any loss.
    """

    version: str = EMITTERS.latest
    compression: bool | int | str | None = None
    chunk_rows: int | None = None
    checksum: str | bool | None = True
    strict: bool = False
    check: bool = False
    durable: Durable = "auto"
    dry_run: bool = False
    threads: int | None = None
    progress: Progress | None = None
    makes_folder: bool = False
    keeps_all: bool = False
    alignment: int | None = None
    canonical: bool = False

    @property
    def is_checked(self) -> bool:
        """Return whether the new file is read back and compared."""
        return self.check and not self.dry_run


DIVIDED = ("zt", "safetensors")  # formats of shards with an index of the hub


def require_divided(kind: str) -> None:
    """Raise unless a format has shards with an index.

    Raises:
        ArgumentValueError: it has none.
    """
    if kind not in DIVIDED:
        raise ArgumentValueError(
            "files of this format are not divided into shards",
            expected=f"one of {', '.join(DIVIDED)}",
            found=describe(kind),
        )


def require_fitting(kind: str, settings: Settings) -> None:
    """Raise if an option is set that a file of a format does not have.

    Raises:
        ArgumentValueError: the file is no `.zt`, or `chunk_rows` is set and it is not compressed.
    """
    fields = dataclasses.fields(settings)
    require_nothing_of_zt(kind, {each.name: getattr(settings, each.name) for each in fields})
    rows, compression = settings.chunk_rows, settings.compression
    if rows is not None and compression in (None, False, "none", "raw"):
        raise ArgumentValueError(
            "chunk_rows goes with a zTensor file that is compressed",
            expected="compression: 'zstd' or a level",
            found=f"chunk_rows {rows}, compression {describe(compression)}",
        )


def format_of(path: str, to: str | None = None) -> str:
    """Return the format of a new file.

    Raises:
        ArgumentValueError: `to` is not a format that is written, or the suffix belongs to none.
    """
    if to is not None:
        return FORMATS.require_written(to)
    kind = FORMATS.by_suffix(path)
    if kind is not None:
        return kind
    written = FORMATS.written()
    known = ", ".join(suffix for suffixes in written.values() for suffix in suffixes)
    raise ArgumentValueError(
        f"no format that is written has the suffix {describe(os.path.splitext(path)[1].lower())}",
        file=path,
        expected=f"one of {known}, or `--to` (to= in Python) with one of {', '.join(written)}",
    )


def matching(
    names: Iterable[str],
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> list[str]:
    """Return the names that match a pattern of `include`, if given, and no pattern of `exclude`.

    Raises:
        ArgumentValueError: all names are excluded.
    """
    keep = keeps(None if include is None else _listed(include), _listed(exclude))
    all_names = list(names)
    chosen = [name for name in all_names if keep(name)]
    if all_names and not chosen:
        raise ArgumentValueError(
            "no object is left to write",
            expected=f"patterns that leave some of {counted(len(all_names), 'name')}, such as "
            f"{', '.join(describe(name) for name in all_names[:3])}",
            found=f"include {_shown(include)}, exclude {_shown(exclude)}",
        )
    return chosen


def _listed(patterns: str | Iterable[str] | None) -> list[str]:
    listed = [patterns] if isinstance(patterns, str) else list(patterns or ())
    for pattern in listed:
        if not isinstance(pattern, str):
            raise ArgumentTypeError("a pattern must be text", found=describe(pattern))
    return listed


def _shown(patterns: str | Iterable[str] | None) -> str:
    return ", ".join(map(describe, _listed(patterns))) or "nothing"
