"""A new file that is to be written: what a caller asks for, looked at before a byte is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ztensor.container import LATEST, emitter_of
from ztensor.model.formats import require_ours
from ztensor.source.paths import is_path, path_text
from ztensor.source.sink import Durable, sink_of
from ztensor.writing.output import Output
from ztensor.writing.planning import attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def create(
    target: Any,
    *,
    version: str = LATEST,
    compression: bool | int | str = False,
    checksum: str | bool | None = True,
    attributes: Mapping[str, object] | None = None,
    durable: Durable = "auto",
    threads: int | None = None,
    format: str | None = None,
    chunk_rows: int | None = None,
    alignment: int | None = None,
    canonical: bool = False,
) -> Output:
    """Begin a new file; see `ztensor.Writer`.

    Args:
        target: as for `Writer`, or a sink or a place that is there already.
        version: this and all that follow as for `Writer`.
        compression: likewise.
        checksum: likewise.
        attributes: likewise.
        durable: likewise.
        threads: likewise.
        format: likewise.
        chunk_rows: likewise.
        alignment: likewise.
        canonical: likewise.
    """
    if is_path(target):
        require_ours(path_text(target), format)
    output = Output(
        emitter_of(version),
        compression=compression,
        checksum=checksum,
        threads=threads,
        chunk_rows=chunk_rows,
        alignment=alignment,
        canonical=canonical,
    )
    given = attributes_of(attributes)
    if given is not None:
        output.emitter.require_attributes(given)
        output.attributes = copy.deepcopy(given)
    output.begin(sink_of(target, durable=durable))
    return output
