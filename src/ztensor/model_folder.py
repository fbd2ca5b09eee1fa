"""The folder of a model as other libraries keep it: weights, and JSON files that tell what it is.

`ztensor.open` takes a folder too, and finds the one model in it. Here the names are known, as the
libraries have them, and what is beside the weights is read. Nothing a file names is imported.

`ModelFolder` is one that is read, `new_folder` one that is written; `library_of` and `words_of` are
how `ztensor.transformers`, `ztensor.diffusers` and `ztensor.peft` speak to their libraries.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor import Reader, Remote
from ztensor import open as open_files
from ztensor.converting.casting import Casts
from ztensor.converting.folders import require_plain
from ztensor.errors import (
    FormatError,
    LimitError,
    MissingDependencyError,
    Reason,
    SourceNotFoundError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import Beneath, OpenFolder, Store, is_remote, path_text, source_of
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.typing import Path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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
        text = path_text(where, local=storage is None)
        if storage is not None or cache is not None:
            where = Remote(where, storage, cache)
        self._remote: Remote | None = None
        if is_remote(text):
            remote = remote_folder(where)
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

    def config(self, name: str, kind: str = "model") -> dict[str, Any]:
        """Return what the JSON file says that tells what the folder is of; see `json`.

        Raises:
            SourceNotFoundError: there is no such file.
        """
        values = self.json(name)
        if values is None:
            raise SourceNotFoundError(
                f"the folder does not say what {kind} it is of", file=self.name, expected=name
            )
        return values

    def open_weights(
        self,
        stems: Sequence[str],
        *,
        variant: str | None = None,
        pickled: bool = False,
        verify: bool | None = None,
        dequantize: bool = False,
    ) -> Reader:
        """Open the weights of the first of several names that is there.

        A `.zt` file goes before a `.safetensors` file, and a whole file before shards. Whatever is
        read is checked, views as well, unless `verify` is False: libraries cast and move what they
        are handed. With `dequantize` quantized objects are float32.

        Args:
            stems: the names without their suffixes, such as `model`.
            variant: as libraries have it: `fp16` in `model.fp16.zt`.
            pickled: whether `.bin` files may be read, by a reader that runs nothing of them.
            verify: as for `ztensor.open`.
            dequantize: as in `LoadOptions`.

        Raises:
            SourceNotFoundError: there are none.
            NotZTensorError: a file is called `.zt` or `.safetensors`, and is a pickle.
            UnsupportedError: the index is a link that leads out of the folder.
            SourceError: the store cannot be asked, or a file cannot be opened.
        """
        found = self._there([n for stem in stems for n in _names(stem, variant, pickled=pickled)])
        if not found:
            raise self._no_weights(stems, variant)
        place: Any = self._place(found[0])
        if isinstance(place, Beneath) and found[0].endswith(".json"):
            with contextlib.closing(source_of(place, mapped=False)):
                place = place.path  # what it names may lie beside it, and nowhere else
        reader = open_files(place, verify=verify is not False)
        try:
            require_plain(reader, pickled=pickled)
        except BaseException:
            reader.close()
            raise
        return Casts(None, dequantize=dequantize).over(reader)

    def _no_weights(self, stems: Sequence[str], variant: str | None) -> SourceNotFoundError:
        names = [name for stem in stems for name in _names(stem, variant)]
        names = [name for name in names if not name.endswith(".json")]
        error = SourceNotFoundError(
            "the folder has no weights", file=self.name, expected=" or ".join(names)
        )
        error.hint = "pickles (.bin) are read with pickled=True, and nothing in them is run"
        return error


def _names(stem: str, variant: str | None, *, pickled: bool = False) -> list[str]:
    """Return the names that weights may have: of each kind a file, then its indexes."""
    files = [(stem, ".zt"), (stem, ".safetensors")]
    if pickled:
        files.append((_PICKLES.get(stem, stem), ".bin"))
    names: list[str] = []
    for base, suffix in files:
        whole = f"{base}.{variant}{suffix}" if variant else base + suffix
        names += [whole, whole + ".index.json"]
        if variant:
            names.append(f"{base}{suffix}.index.{variant}.json")
    return names


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


# --- What is written ----------------------------------------------------------------------------


class NewFolder(NamedTuple):
    """A folder that a model is saved into.

    Attributes:
        name: what messages call it.
        path: where a library writes its files: the folder, or one that is sent to a store.
        remote: its URL, with a slash at its end; None on disk.
    """

    name: str
    path: str
    remote: Remote | None

    def file(self, name: str) -> Path:
        """Return what `save_file` takes for weights of a name."""
        return os.path.join(self.path, name) if self.remote is None else self.remote.beside(name)


@contextlib.contextmanager
def new_folder(where: Any) -> Iterator[NewFolder]:
    """Give a folder to write to, which is made where it is missing.

    What a library has written into it goes to a store at the end, behind the weights.

    Raises:
        UsageError: nothing is written to URLs of its scheme.
        SourceError: it cannot be made, or the store does not take a file.
    """
    text = path_text(where, local=True)
    if not is_remote(text):
        OpenFolder.make(text)
        yield NewFolder(text, text, None)
        return
    remote = remote_folder(where)
    store = Store.of(remote.url)
    store.require_writable(remote.beside("config.json"))
    with tempfile.TemporaryDirectory() as path:
        yield NewFolder(remote.name, path, remote)
        for name in sorted(os.listdir(path)):
            sink = store.sink(remote.beside(name))
            try:
                with open(os.path.join(path, name), "rb") as file:
                    sink.write(file.read())
                sink.commit()
            finally:
                sink.abort()


def remote_folder(where: Any) -> Remote:
    """Return a URL with a slash at its end."""
    remote = Remote(where)
    return Remote(f"{remote.url.rstrip('/')}/", remote.storage, remote.cache)


# --- The libraries ------------------------------------------------------------------------------


def library_of(name: str, extra: str | None = None) -> Any:
    """Return a library, imported when it is first needed.

    Raises:
        MissingDependencyError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision of another torch raises the latter
        raise MissingDependencyError(
            f"ztensor.{extra or name} needs {name}", install=name, found=describe(str(error))
        ) from error


@contextlib.contextmanager
def words_of(library: str, file: str, failures: Sequence[ZTensorError] = ()) -> Iterator[None]:
    """Raise what a library raises for wrong arguments and files as an error of ours.

    Args:
        library: its name.
        file: what it was about.
        failures: errors of reading that happened meanwhile, in whatever thread: the first of them
            is the cause, whatever the library made of it.

    Raises:
        UsageError: the library refuses something; the message has its words.
    """
    try:
        yield
    except (ZTensorError, MemoryError, RecursionError):
        raise
    except Exception as error:  # they have families of errors of their own
        if failures:
            raise failures[0] from error
        text = str(error).strip() or type(error).__name__
        raise UsageError(f"{library}: {text}", file=file) from error


def require_fit(
    file: str, kind: str, missing: Iterable[object], unexpected: Iterable[object]
) -> None:
    """Raise where weights are not those of a model.

    Raises:
        UsageError: names are missing from the file, or not known to the model.
    """
    found = (("Missing", missing), ("Unexpected", unexpected))
    texts = [(what, ", ".join(f'"{name}"' for name in sorted(map(str, n)))) for what, n in found]
    parts = [f"\n\t{what} key(s): {text}" for what, text in texts if text]
    if parts:
        raise UsageError(f"the weights do not fit {kind}:" + "".join(parts), file=file)
