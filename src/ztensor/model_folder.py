"""Folders of models in the conventions of other libraries: weights and JSON files.

`ztensor.open` also takes a folder, and finds the only model in it. Here file names follow the
library, and the JSON files are read. No name in a file is imported.

`ModelFolder` is for reading, `new_folder` for writing. `library_of` and `library_errors` are how
`ztensor.transformers`, `ztensor.diffusers` and `ztensor.peft` call their libraries.
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


# A config has kilobytes; the file of a tokenizer, which is not read here, has megabytes.
_MOST_JSON_BYTES = 16 << 20
_PICKLES = {"model": "pytorch_model"}  # names of pickles that differ from other weights


class ModelFolder:
    """A folder on disk or in a store.

    Args:
        where: its path or URL.
        subfolder: a subfolder to use instead.
        storage: see `OpenOptions`.
        cache: see `OpenOptions`.

    Attributes:
        name: its name in messages.
        path: its path on disk; None in a store.

    Raises:
        SourceNotFoundError: the folder does not exist on disk.
        FormatError: `subfolder` leads out of it.
        ArgumentTypeError: `where` is not a path, or `storage` cannot open a store.
        ArgumentValueError: `storage` or `cache` is set for a folder on disk.
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
        # Links may lead anywhere in the caller's folder, also from one subfolder to another.
        self._roots = Beneath.roots_of(text)
        if os.path.isfile(self.path):
            folder = os.path.dirname(self.path) or os.curdir
            error = SourceNotFoundError("this is a file, not the folder of a model", file=self.name)
            error.hint = f"pass the folder: {describe(folder, 200)}"
            raise error
        if not os.path.isdir(self.path):
            raise SourceNotFoundError("the folder does not exist", file=self.name)

    def _place(self, name: str) -> Beneath | Remote:
        if self._remote is not None:
            return self._remote.beside(name)
        return Beneath(os.path.join(self.path or "", name), self._roots)

    def _existing(self, names: list[str]) -> list[str]:
        """Return the names that exist in the folder, in the same order."""
        if self._remote is not None:
            return Store.of(self._remote.url).there(self._remote, names)
        return [name for name in names if os.path.lexists(os.path.join(self.path or "", name))]

    def json(self, name: str) -> dict[str, Any] | None:
        """Return the object of a JSON file in the folder; None if the file is missing.

        Raises:
            FormatError: it is not JSON, or not an object.
            LimitError: it has more than 16 MiB, or would take far more memory than its length.
            UnsupportedError: it is a link that leads out of the folder.
            SourceError: it cannot be read.
        """
        place = self._place(name)
        try:
            with contextlib.closing(source_of(place, mapped=False)) as source:
                if source.size > _MOST_JSON_BYTES:
                    raise LimitError(
                        "the file is too long for a model's config",
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
        """Return the object of a JSON file that the folder must have; see `json`.

        Raises:
            SourceNotFoundError: the file is missing.
        """
        values = self.json(name)
        if values is None:
            raise SourceNotFoundError(
                f"the folder has no config of a {kind}", file=self.name, expected=name
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
        """Open the weights of the first of several names that exists.

        `.zt` files precede `.safetensors` files, and one file precedes shards. All data is checked,
        also views, unless `verify` is False: libraries cast and move the tensors. With `dequantize`
        quantized objects are float32.

        Args:
            stems: the names without their suffixes, such as `model`.
            variant: the libraries' variant: `fp16` in `model.fp16.zt`.
            pickled: whether `.bin` files may be read, by a reader that runs nothing in them.
            verify: as for `ztensor.open`.
            dequantize: as in `LoadOptions`.

        Raises:
            SourceNotFoundError: the folder has no weights.
            NotZTensorError: a file with the suffix `.zt` or `.safetensors` is a pickle.
            UnsupportedError: the index is a link that leads out of the folder.
            SourceError: the store cannot be asked, or a file cannot be opened.
        """
        names = [name for stem in stems for name in _names(stem, variant, pickled=pickled)]
        existing = self._existing(names)
        if not existing:
            raise self._no_weights(stems, variant)
        place: Any = self._place(existing[0])
        if isinstance(place, Beneath) and existing[0].endswith(".json"):
            with contextlib.closing(source_of(place, mapped=False)):
                place = place.path  # the index may name files beside it only
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
        error.hint = "pickles (.bin) are read with pickled=True, without running them"
        return error


def _names(stem: str, variant: str | None, *, pickled: bool = False) -> list[str]:
    """Return possible names of weights: of each format a file, then its indexes."""
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
            "the file does not describe a model",
            reason=Reason.FIELD_VALUE,
            file=name,
            expected="a JSON object",
            found=describe(values, 80),
        )
    return values


# --- Writing ------------------------------------------------------------------------------------


class NewFolder(NamedTuple):
    """A folder that a model is saved into.

    Attributes:
        name: its name in messages.
        path: a folder on disk for the library's files; for a store, a temporary one.
        remote: its URL, with a slash at its end; None on disk.
    """

    name: str
    path: str
    remote: Remote | None

    def file(self, name: str) -> Path:
        """Return the path of weights for `save_file`."""
        return os.path.join(self.path, name) if self.remote is None else self.remote.beside(name)


@contextlib.contextmanager
def new_folder(where: Any) -> Iterator[NewFolder]:
    """Open a folder for writing, and make it if it is missing.

    For a store, files that the library writes are uploaded at the end, after the weights.

    Raises:
        UsageError: URLs of its scheme are read-only.
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
    """Import a library on first use.

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
def library_errors(
    library: str, file: str, failures: Sequence[ZTensorError] = ()
) -> Iterator[None]:
    """Translate errors of a library, for wrong arguments and files, into `UsageError`.

    Args:
        library: the library's name.
        file: the file or folder, for the message.
        failures: errors of concurrent reads, in any thread. The first is raised as the cause in the
            place of the library's error.

    Raises:
        UsageError: the library raised an error; the message has its text.
    """
    try:
        yield
    except (ZTensorError, MemoryError, RecursionError):
        raise
    except Exception as error:  # libraries have error classes of their own
        if failures:
            raise failures[0] from error
        text = str(error).strip() or type(error).__name__
        raise UsageError(f"{library}: {text}", file=file) from error


def require_fit(
    file: str, kind: str, missing: Iterable[object], unexpected: Iterable[object]
) -> None:
    """Raise unless weights fit a model.

    Raises:
        UsageError: names are missing from the file, or not known to the model.
    """
    parts = []
    for kind_of_key, names in (("Missing", missing), ("Unexpected", unexpected)):
        text = ", ".join(f'"{name}"' for name in sorted(map(str, names)))
        if text:
            parts.append(f"\n\t{kind_of_key} key(s): {text}")
    if parts:
        raise UsageError(f"the weights do not fit {kind}:" + "".join(parts), file=file)
