"""`convert`: whatever can be read as a new file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.converting.asking import (
    Settings,
    format_of,
    matching,
    require_compressed,
    require_divided,
)
from ztensor.converting.casting import Casts, cast_target
from ztensor.converting.files import write_file, write_set
from ztensor.converting.planning import plan_objects
from ztensor.converting.quantizing import scheme_of
from ztensor.converting.report import ConversionReport
from ztensor.converting.source import Opened, part_of, require_other
from ztensor.errors import ArgumentValueError
from ztensor.ext import EMITTERS, Place, ShardSet, path_text
from ztensor.options import ConvertOptions, RewriteOptions, parse_size, require_options
from ztensor.typing import Path, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    import numpy.typing as npt


def convert(
    source: Readable,
    path: Path,
    **options: Unpack[ConvertOptions],
) -> ConversionReport:
    """Write what a file of any known format holds as a file of another, or of another version.

    The new file appears as a whole or not at all; an error leaves what was there before. Files
    larger than memory are no problem: of an object only a few MiB at a time are held, and 32 MiB
    where its elements have to be put in another order; as a whole only those of a deflated member
    in such an order, and numbers that ONNX packs in other ways than as plain bytes.

    Args:
        source: whatever `ztensor.open` takes, also a set of shards, or an open reader.
        path: the new file; it replaces one that is there, unless `overwrite` is False.
        options: see `ztensor.typing.ConvertOptions`.

    Returns:
        What was written, and what was lost on the way.

    Raises:
        ArgumentValueError: an argument has an unknown value, the suffix says no format, or no
            name matches.
        UsageError: there is a file and `overwrite` is False; source and target are one file, see
            `migrate`; or a format of one array is to hold several.
        NotRepresentableError: something would be lost, and `strict` is set; or all would be; or
            an element is too large for `dtype`.
        MissingDependencyError: the library of a format is not installed.
        FormatError: the source is damaged, or what was written does not read back as its source.
        UnsupportedError: the source holds what this release cannot read.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read or written.
    """
    require_options("convert", options, ConvertOptions)
    return convert_as(source, path, **options)


def convert_as(
    source: Readable,
    path: Path,
    *,
    to: str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    max_shard_size: int | str | None = None,
    strict: bool = False,
    check: bool = False,
    dtype: npt.DTypeLike | None = None,
    dequantize: bool = False,
    quantize: str | None = None,
    overwrite: bool = True,
    makes_folder: bool = False,
    **options: Unpack[RewriteOptions],
) -> ConversionReport:
    """Convert; see `ConvertOptions`, and for `makes_folder` `Settings`.

    Raises:
        ZTensorError: what `convert` raises.
    """
    settings = Settings(strict=strict, check=check, makes_folder=makes_folder, **options)
    target = path_text(path)
    kind = format_of(target, to)
    settings = dataclasses.replace(settings, version=EMITTERS.known(settings.version))
    require_compressed(kind, settings.compression, settings.chunk_rows)
    if not overwrite:
        Place.of(path).require_free()
        for there in ShardSet.earlier(path).files() if max_shard_size is not None else ():
            there.require_free()
    scheme = None if quantize is None else scheme_of(quantize)
    if scheme is not None and (kind != "zt" or dequantize):
        raise ArgumentValueError(
            "only a .zt file has objects that were quantized here",
            expected="a target that ends with .zt, and no dequantize",
            found=f"a target of the format {kind!r}",
        )
    with Opened(source) as reader:
        inputs = reader.objects.paths
        require_other(inputs, target)
        chosen = matching(reader, include, exclude)
        casts = Casts(cast_target(dtype), dequantize=dequantize, scheme=scheme, quantized=chosen)
        part = casts.over(part_of(reader, chosen if scheme is None else list(reader)))
        if max_shard_size is None:
            place = Place.of(path)
            place = place._replace(is_new=not overwrite and place.remote is not None)
            return _told(casts, write_file(part, place, kind, inputs, settings))
        limit = parse_size(max_shard_size)
        require_divided(kind)
        groups = plan_objects(part, part, limit, kind)
        earlier = ShardSet.earlier(path)
        old = [place.path for place in earlier.files()]
        for file in (*old, *ShardSet.names(target, len(groups))):
            require_other(inputs, file)
        if len(groups) > 1:
            return _told(casts, write_set(part, path, kind, groups, inputs, settings))
        place, flush = earlier.place_of_whole(settings.durable)
        settings = dataclasses.replace(settings, durable=flush)
        report = write_file(part, place, kind, inputs, settings)
        if not settings.dry_run:
            earlier.remove()
        return _told(casts, report)


def _told(casts: Casts, report: ConversionReport) -> ConversionReport:
    return dataclasses.replace(report, changed=casts.changes)
