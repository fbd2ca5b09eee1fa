"""`.keras`: the archive of a whole Keras 3 model, read as the HDF5 file of weights within.

| member | becomes |
| --- | --- |
| `model.weights.h5` | objects and attributes, by the rules of `hdf5/` |
| `config.json`, `metadata.json` | attributes of the file by these names, as text |

Keras stores its members as they are. Weights that another program deflated are refused: nothing in
them could be found without inflating all. No layer is made and no code of the configuration is run.
"""

from __future__ import annotations

import dataclasses

from ztensor.errors import FormatError, Reason, UnsupportedError, describe
from ztensor.ext import Projection, Source
from ztensor.formats import hdf5
from ztensor.formats.within import Within, moved
from ztensor.formats.zip import STORED, Entry, account, place, read_entries
from ztensor.limits import Budget

WEIGHTS = "model.weights.h5"
_TEXTS = ("config.json", "metadata.json")
_TEXT_BYTES = 16 << 20


def project(source: Source, budget: Budget) -> Projection:
    """Return the contents of a model's weights; see the module's docstring.

    Raises:
        FormatError: the archive or the weights are damaged.
        UnsupportedError: the weights are missing or deflated.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    entries = read_entries(source, budget)
    entry = entries.get(WEIGHTS)
    if entry is None or entry.method != STORED:
        error = UnsupportedError(
            "the zip archive is not a Keras archive",
            reason=Reason.UNKNOWN_LAYOUT,
            expected=f"a stored member {WEIGHTS!r}",
            found="a deflated one" if entry else f"none among {len(entries)}",
        )
        if entry:
            error.hint = "unpack the archive and open the member itself"
        raise error
    weights = place(source, entry)
    inner = hdf5.project(Within(source, weights.offset, weights.length), budget)
    attributes = dict(inner.manifest.attributes or {})
    given = {WEIGHTS}
    for name in _TEXTS:
        text = entries.get(name)
        if text is not None and text.method == STORED and text.length <= _TEXT_BYTES:
            attributes[name] = _text(source, text, budget)
            given.add(name)
    objects = {name: moved(value, weights.offset) for name, value in inner.manifest.objects.items()}
    manifest = inner.manifest._replace(objects=objects, attributes=attributes or None)

    return dataclasses.replace(
        inner,
        manifest=manifest,
        account=lambda: account(
            source, entries, given, lambda _: "member of the archive", inner.account()
        ),
    )


def _text(source: Source, entry: Entry, budget: Budget) -> str:
    stored = place(source, entry)
    try:
        with budget.lent(2 * stored.length):
            return budget.text(bytes(stored.read(0, stored.length)))
    except UnicodeDecodeError as error:
        raise FormatError(
            "a text in the archive is not UTF-8",
            reason=Reason.FIELD_VALUE,
            found=describe(entry.name),
        ) from error
