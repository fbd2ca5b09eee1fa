"""What of a file no copy of its objects has, and the errors where something would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor import Reader
from ztensor.converting.asking import Settings
from ztensor.converting.report import Loss
from ztensor.errors import NotRepresentableError, counted, describe
from ztensor.ext import Unrepresented

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized


_FRAME_FIELD = "frames"  # of a component, where its frames are: a copy has frames of its own


def unrepresented(reader: Reader) -> list[Unrepresented]:
    """Return what a file says beside its objects; of those that are listed only each is a loss."""
    return [one for one in reader.unrepresented if not (one.is_unread and one.where in reader)]


def lost_of_file(reader: Reader, kind: str, settings: Settings) -> list[Loss]:
    """Return what no copy of the objects of a file has."""
    return [
        *(Loss(None, f"left out: {one}", one.kind) for one in unrepresented(reader)),
        *_unknown_fields(reader, kind, settings.version),
    ]


def _unknown_fields(reader: Reader, kind: str, version: str) -> Iterator[Loss]:
    """Yield the fields that no version names and that the new file will not have."""
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
                # Where frames lie is told anew of those that are written.
                own = (key for key in component.extra or () if key != _FRAME_FIELD)
                fields += [f"{role}.{key}" for key in own]
            if fields and name in reader:
                sentence = f"left out: fields {', '.join(map(describe, fields))}"
                yield Loss(name, sentence, "fields of an object")


def require_lossless(lost: Sequence[Loss], target: str) -> None:
    """Raise where something would be lost.

    Raises:
        NotRepresentableError: so it is.
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
    """Raise where there are objects, and the new file could have none of them.

    Raises:
        NotRepresentableError: so it is.
    """
    if len(reader) and not chosen:
        raise NotRepresentableError(
            f"of {counted(len(reader), 'object')} the new file can hold none; the first is "
            f"{next(loss for loss in lost if loss.object_name is not None).sentence}",
            file=target,
        )
