"""Losses of a file that copies of its objects do not have, and errors for strict conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor import Reader
from ztensor.converting.report import Loss
from ztensor.converting.settings import Settings
from ztensor.errors import NotRepresentableError, counted, describe
from ztensor.ext import Unrepresented

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized


_FRAME_FIELD = "frames"  # of a component: the table of its frames; a copy has its own


def unrepresented(reader: Reader) -> list[Unrepresented]:
    """Return the dropped content of a file, without listed objects: each is a loss itself."""
    return [loss for loss in reader.unrepresented if not (loss.is_unread and loss.where in reader)]


def lost_of_file(reader: Reader, kind: str, settings: Settings) -> list[Loss]:
    """Return the losses of a file beside its objects."""
    return [
        *(Loss(None, f"left out: {loss}", loss.kind) for loss in unrepresented(reader)),
        *_unknown_fields(reader, kind, settings.version),
    ]


def _unknown_fields(reader: Reader, kind: str, version: str) -> Iterator[Loss]:
    """Yield unknown fields of the manifest that the new file will not have."""
    keeps_any = kind == "zt" and version != "0.1.0"
    for file in reader.objects.parts():
        manifest = file.manifest
        if not keeps_any or reader.objects.is_set:
            for key in manifest.extra or ():
                sentence = f"left out: field {describe(key)} of the manifest's root"
                yield Loss(None, sentence, "field of the root")
        if keeps_any:
            continue
        for name, value in manifest.objects.items():
            fields = list(value.extra or ())
            for role, component in value.components.items():
                # The table of frames is written anew.
                own = (key for key in component.extra or () if key != _FRAME_FIELD)
                fields += [f"{role}.{key}" for key in own]
            if fields and name in reader:
                sentence = f"left out: fields {', '.join(map(describe, fields))}"
                yield Loss(name, sentence, "fields of an object")


def require_lossless(lost: Sequence[Loss], target: str) -> None:
    """Raise if there are losses.

    Raises:
        NotRepresentableError: there are.
    """
    if not lost:
        return
    first = lost[0]
    more = f"; and {len(lost) - 1} more" if len(lost) > 1 else ""
    raise NotRepresentableError(
        f"the new file cannot represent everything: {first.sentence}{more}",
        file=target,
        object_name=first.object_name,
    )


def require_some(reader: Reader, chosen: Sized, lost: Sequence[Loss], target: str) -> None:
    """Raise if the source has objects, and the new file cannot hold any of them.

    Raises:
        NotRepresentableError: it cannot.
    """
    if len(reader) and not chosen:
        raise NotRepresentableError(
            f"the new file cannot hold any of {counted(len(reader), 'object')}; the first is "
            f"{next(loss for loss in lost if loss.object_name is not None).sentence}",
            file=target,
        )
