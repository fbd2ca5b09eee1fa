"""`convert`: a new file of any readable source."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.converting.casting import Casts, cast_target
from ztensor.converting.files import write_file, write_set
from ztensor.converting.planning import plan_objects
from ztensor.converting.quantizing import scheme_of
from ztensor.converting.recipe import Recipe
from ztensor.converting.report import ConversionReport
from ztensor.converting.settings import (
    Settings,
    format_of,
    matching,
    require_divided,
    require_fitting,
)
from ztensor.converting.source import Opened, is_same, part_of, require_other
from ztensor.errors import ArgumentValueError, UsageError
from ztensor.ext import EMITTERS, Place, ShardSet, path_text
from ztensor.options import ConvertOptions, RewriteOptions, parse_size, require_options
from ztensor.quantization.scheme import GroupScheme
from ztensor.typing import Path, Readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    import numpy.typing as npt


def convert(
    source: Readable,
    path: Path,
    *,
    recipe: Path | Mapping[str, object] | Recipe | None = None,
    reverse: bool = False,
    **options: Unpack[ConvertOptions],
) -> ConversionReport:
    """Write the content of a file of any known format as a file of another format or version.

    The new file is written atomically; an error leaves an old file unchanged. Files may be larger
    than memory: a few MiB of an object are held at a time, and 32 MiB if its elements have to be
    reordered. Only deflated members in such an order, and numbers that ONNX does not store as raw
    bytes, are held completely.

    Args:
        source: a source of `ztensor.open`, also a set of shards, or an open reader.
        path: the new file; it replaces an old file, unless `overwrite` is False.
        recipe: rules that rename, cut, join and move objects: the path of a TOML file, its content,
            or a `ztensor.converting.Recipe`. All other options are for the new names.
        reverse: True applies the inverse of the recipe.
        options: see `ztensor.typing.ConvertOptions`.

    Returns:
        The report of written files, losses and changes.

    Raises:
        ArgumentValueError: an argument has an unknown value, the suffix belongs to no format, or no
            name matches.
        UsageError: there is a file and `overwrite` is False; source and target are one file, see
            `migrate`; or a format of one array would have to hold several.
        NotRepresentableError: something would be lost, and `strict` is set; or everything would; or
            an element is too large for `dtype`.
        MissingDependencyError: the library of a format is not installed.
        FormatError: the source is damaged, or the written file differs from it when read back.
        UnsupportedError: this release cannot read an object of the source.
        LimitError: a safety cap is exceeded.
        SourceError: a file cannot be read or written.
    """
    require_options("convert", options, ConvertOptions)
    if recipe is None and reverse:
        raise ArgumentValueError("reverse goes with a recipe", expected="recipe=")
    rules = None if recipe is None else Recipe.of(recipe, reverse=reverse)
    return convert_as(source, path, rules, **options)


def convert_as(
    source: Readable,
    path: Path,
    recipe: Recipe | None = None,
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
    """Convert; see `convert`, `ConvertOptions`, and for `makes_folder` `Settings`.

    Raises:
        ZTensorError: what `convert` raises.
    """
    settings = Settings(strict=strict, check=check, makes_folder=makes_folder, **options)
    target = path_text(path)
    kind = format_of(target, to)
    settings = dataclasses.replace(settings, version=EMITTERS.known(settings.version))
    require_fitting(kind, settings)
    if not overwrite:
        Place.of(path).require_free()
        for there in ShardSet.earlier(path).files() if max_shard_size is not None else ():
            there.require_free()
    scheme = None if quantize is None else _scheme_of(quantize, kind, dequantize=dequantize)
    with Opened(source) as opened:
        inputs = opened.objects.paths
        require_other(inputs, target)
        if recipe is not None and is_same(recipe.name, target):
            raise UsageError("the recipe and the target are one file", file=target)
        reader, by_name = (opened, None) if recipe is None else recipe.over(opened)
        chosen = matching(reader, include, exclude)
        casts = Casts(
            cast_target(dtype), dequantize=dequantize, scheme=scheme, quantized=chosen,
            by_name=by_name,
        )  # fmt: skip
        part = casts.over(part_of(reader, chosen if scheme is None else list(reader)))
        if max_shard_size is None:
            place = Place.of(path)
            place = place._replace(is_new=not overwrite and place.remote is not None)
            return _with_changes(casts, write_file(part, place, kind, inputs, settings))
        limit = parse_size(max_shard_size)
        require_divided(kind)
        groups = plan_objects(part, part, limit, kind)
        earlier = ShardSet.earlier(path)
        old = [place.path for place in earlier.files()]
        for file in (*old, *ShardSet.names(target, len(groups))):
            require_other(inputs, file)
        if len(groups) > 1:
            return _with_changes(casts, write_set(part, path, kind, groups, inputs, settings))
        place, flush = earlier.place_of_whole(settings.durable)
        settings = dataclasses.replace(settings, durable=flush)
        report = write_file(part, place, kind, inputs, settings)
        if not settings.dry_run:
            earlier.remove()
        return _with_changes(casts, report)


def _scheme_of(quantize: str, kind: str, *, dequantize: bool) -> GroupScheme:
    if kind != "zt" or dequantize:
        raise ArgumentValueError(
            "only .zt files can hold quantized objects",
            expected="a target that ends with .zt, and no dequantize",
            found=f"a target of the format {kind!r}",
        )
    return scheme_of(quantize)


def _with_changes(casts: Casts, report: ConversionReport) -> ConversionReport:
    return dataclasses.replace(report, changed=casts.changes)
