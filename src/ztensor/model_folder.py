"""The folder of a model as other libraries keep it: weights, and JSON files that tell what it is.

`ztensor.open` takes a folder too, and finds the one model in it. Here the names are known, as the
libraries have them, and what is beside the weights is read. Nothing a file names is imported.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Remote
from ztensor import open as open_files
from ztensor.converting.casting import Casts
from ztensor.converting.folders import require_plain
from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
    SourceNotFoundError,
    describe,
)
from ztensor.ext import Beneath, Store, is_remote, path_text, source_of
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.typing import Openable

if TYPE_CHECKING:
    from collections.abc import Iterable


# What describes a model has kilobytes; a tokenizer's file, which is not read here, has megabytes.
_MOST_JSON_BYTES = 16 << 20
_PICKLES = {"model": "pytorch_model"}  # what files of pickles are called where it is another name


class ModelFolder:
    """A folder on disk or in a store.

    Args:
        where: its path or URL.
        subfolder: a folder in it that is meant.
        storage: see `OpenOptions`.
        cache: likewise.

    Attributes:
        name: what messages call it.
        path: where it is on disk; None for one in a store.

    Raises:
        SourceNotFoundError: there is no such folder on disk.
        FormatError: `subfolder` leads out of it.
        ArgumentTypeError: `where` is no path, or `storage` is nothing that opens a store.
        ArgumentValueError: `storage` or `cache` is given for a folder on disk.
    """

    def __init__(
        self, where: Any, *, subfolder: str = "", storage: Any = None, cache: Any = None
    ) -> None:
        inner = "/".join(Beneath.parts_of(subfolder)) if subfolder else ""
        is_plain = storage is None and cache is None
        place = where if is_plain else Remote(where, storage, cache)
        text = path_text(where, local=storage is None)
        self._remote: Remote | None = None
        if is_remote(text):
            remote = Remote(place)
            if not remote.url.endswith("/"):
                remote = Remote(f"{remote.url}/", remote.storage, remote.cache)
            self._remote = remote.beside(f"{inner}/") if inner else remote
            self.path, self.name = None, self._remote.name
            return
        self.path = self.name = os.path.join(text, inner) if inner else text
        # Beneath the folder the caller named: a folder in it may be a link to another in it.
        self._roots = Beneath.roots_of(text)
        if os.path.isfile(self.path):
            folder = os.path.dirname(self.path) or os.curdir
            error = SourceNotFoundError("this is a file, not the folder of a model", file=self.name)
            error.hint = f"pass the folder: {describe(folder, 200)}"
            raise error
        if not os.path.isdir(self.path):
            raise SourceNotFoundError("there is no such folder", file=self.name)

    def _place(self, name: str) -> Beneath | Remote:
        if self._remote is not None:
            return self._remote.beside(name)
        return Beneath(os.path.join(self.path or "", name), self._roots)

    def _there(self, names: list[str]) -> list[str]:
        """Return those of the names that are there, in their order."""
        if self._remote is not None:
            return Store.of(self._remote.url).there(self._remote, names)
        return [name for name in names if os.path.lexists(os.path.join(self.path or "", name))]

    def json(self, name: str) -> dict[str, Any] | None:
        """Return what a JSON file in the folder says; None where there is no such file.

        Raises:
            FormatError: it is no JSON, or no object.
            LimitError: it has more than 16 MiB, or would take far more memory than its length.
            UnsupportedError: it is a link that leads out of the folder.
            SourceError: it cannot be read.
        """
        place = self._place(name)
        try:
            with contextlib.closing(source_of(place, mapped=False)) as source:
                if source.size > _MOST_JSON_BYTES:
                    raise LimitError(
                        "the file is longer than any that describes a model",
                        reason=Reason.LIMIT_MANIFEST,
                        file=source.name,
                        expected=f"at most {_MOST_JSON_BYTES} bytes",
                        found=str(source.size),
                    )
                data = bytes(source.read(0, source.size))
                return _parsed(data, source.name)
        except SourceNotFoundError:
            return None

    def weights(
        self, stem: str, *, variant: str | None = None, pickled: bool = False
    ) -> Openable | None:
        """Return what opens the weights of a name; None where there are none.

        A `.zt` file goes before a `.safetensors` file, and a whole file before shards.

        Args:
            stem: the name without its suffix, such as `model`.
            variant: as libraries have it: `fp16` in `model.fp16.zt`.
            pickled: whether `.bin` files may be read, by a reader that runs nothing of them.

        Raises:
            UnsupportedError: the index is a link that leads out of the folder.
            SourceError: the store cannot be asked, or the index cannot be opened.
        """
        files = [(stem, ".zt"), (stem, ".safetensors")]
        if pickled:
            files.append((_PICKLES.get(stem, stem), ".bin"))
        names: list[str] = []
        for base, suffix in files:
            whole = f"{base}.{variant}{suffix}" if variant else base + suffix
            names += [whole, whole + ".index.json"]
            if variant:
                names.append(f"{base}{suffix}.index.{variant}.json")
        found = self._there(names)
        if not found:
            return None
        place = self._place(found[0])
        if isinstance(place, Beneath) and found[0].endswith(".json"):
            with contextlib.closing(source_of(place, mapped=False)):
                return place.path  # what it names may lie beside it, and nowhere else
        return place

    def open_weights(
        self,
        stems: Iterable[str],
        *,
        variant: str | None = None,
        pickled: bool = False,
        verify: bool | None = None,
        dequantize: bool = False,
    ) -> Reader:
        """Open the weights of the first of several names that is there; see `weights`.

        Whatever is read of them is checked, views as well, unless `verify` is False: libraries cast
        and move what they are handed. With `dequantize` quantized objects are float32.

        Raises:
            SourceNotFoundError: there are none.
            NotZTensorError: a file is called `.zt` or `.safetensors`, and is a pickle.
        """
        names = list(stems)
        for stem in names:
            place = self.weights(stem, variant=variant, pickled=pickled)
            if place is not None:
                reader = open_files(place, verify=verify is not False)
                try:
                    require_plain(reader, pickled=pickled)
                except BaseException:
                    reader.close()
                    raise
                return Casts(None, dequantize=dequantize).over(reader)
        variants = f".{variant}" if variant else ""
        error = SourceNotFoundError(
            "the folder has no weights",
            file=self.name,
            expected=" or ".join(
                f"{stem}{variants}{suffix}" for stem in names for suffix in (".zt", ".safetensors")
            ),
        )
        error.hint = "pickles (.bin) are read with pickled=True, and nothing in them is run"
        raise error


def _parsed(data: bytes, name: str) -> dict[str, Any]:
    try:
        budget = Budget(DEFAULT_LIMITS, len(data))
        budget.charge_json(data)
        values = json.loads(budget.text(data.removeprefix(codecs.BOM_UTF8)))
    except LimitError as error:
        error.locate(file=name)
        raise
    except RecursionError as error:
        raise LimitError(
            "the file is nested too deeply", reason=Reason.LIMIT_DEPTH, file=name
        ) from error
    except ValueError as error:
        raise FormatError(
            "the file is not JSON",
            reason=Reason.FIELD_VALUE,
            file=name,
            found=describe(str(error), 120),
        ) from error
    if not isinstance(values, dict):
        raise FormatError(
            "the file describes no model",
            reason=Reason.FIELD_VALUE,
            file=name,
            expected="a JSON object",
            found=describe(values, 80),
        )
    return values
