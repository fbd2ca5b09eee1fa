"""Sign files and folders, verify them, and open zTensor files under a signature."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Remote
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LimitError,
    NotZTensorError,
    Problem,
    Reason,
    SourceError,
    SourceNotFoundError,
    UnsupportedError,
    UnsupportedVersionError,
    describe,
    system_call,
)
from ztensor.ext import (
    Beneath,
    FileObjects,
    Lock,
    ObjectReader,
    Objects,
    Place,
    Range,
    Source,
    is_remote,
    open_file,
    path_text,
    run_jobs,
    source_of,
    thread_count,
)
from ztensor.limits import DEFAULT_LIMITS, Limits, caps_of
from ztensor.options import OpenOptions, require_options
from ztensor.signing.bundle import SINGLE, Resource, SignatureError, Statement, emit, parse
from ztensor.signing.contents import is_as_noted, notes_of, under_notes
from ztensor.signing.keys import Key, private_key, public_key, sha256_of
from ztensor.typing import Durable, Openable, Path, Progress, VerifyReport

if TYPE_CHECKING:
    from typing import Unpack

_OF_FOLDERS = "model.sig"
_NEVER_SIGNED = (".git", ".gitattributes", ".github", ".gitignore")  # OMS 1.0 section 6.2
_CHECKPOINT = "checkpoint.zt"
_NOTHING_READ = VerifyReport((), (), checked=0, undigested=0, objects=0, nbytes=0)


@dataclasses.dataclass(frozen=True, slots=True)
class SignatureReport:
    """What was signed or verified.

    Attributes:
        key: fingerprint of the public key: `SHA256:` and hexadecimal digits.
        files: number of whole files that were hashed.
        kept: number of files of which `sign(update=True)` kept the digests.
        components: number of components that were hashed.
        signed: number of components that the signature covers one by one.
        contents: what `verify` found in all files, and in the components of zTensor files.
    """

    key: str
    files: int
    kept: int
    components: int
    signed: int
    contents: VerifyReport = _NOTHING_READ

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.contents.problems


class SignedReader(Reader):
    """The reader that `ztensor.signing.open` returns.

    Data is compared with its signed digest whenever it is read, and before a view of it is
    returned. Pickled, it verifies the signature again in the other process.

    Attributes:
        key: fingerprint of the public key: `SHA256:` and hexadecimal digits.
    """

    def __init__(self, objects: Objects, key: str, reopen: Callable[[], SignedReader]) -> None:
        ObjectReader.__init__(self, objects)
        self.key, self._reopen = key, reopen

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments of `ztensor.signing.open`."""
        self.objects.require_open()
        return self._reopen, ()


def sign(
    path: Path,
    key: Path | bytes,
    *,
    signature: Path | None = None,
    password: str | bytes | None = None,
    update: bool = False,
    overwrite: bool = False,
    durable: Durable = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> SignatureReport:
    """Sign a file, or all files of a folder.

    zTensor files are read twice: for the digest of the whole file, and for those of components.

    Args:
        path: a file of any format, or a folder without links. Git's files in it are left out.
        key: the private key in PEM: a path, or the bytes.
        signature: where the signature goes; by default `<path>.sig`, of a folder `model.sig` in it.
        password: the password of an encrypted private key.
        update: True keeps the digests of zTensor files whose length and manifest are those that the
            old signature has, if every component has a digest in the manifest. The old signature
            must be of the same key, and is replaced.
        overwrite: True replaces a file that is where the signature goes.
        durable: as in `SaveOptions`.
        threads: how many hash, as in `LoadOptions`.
        progress: called with the bytes of files hashed so far and of all of them.

    Raises:
        FormatError: a zTensor file is damaged.
        SignatureError: with `update`: the old signature is not valid.
        UsageError: there is a file where the signature goes.
        ArgumentValueError: the key cannot be used, or the folder has links or no file.
        SourceError: a file cannot be read, or the signature not written.
    """
    root = os.path.abspath(path_text(path, local=True))
    secret = private_key(key, password)
    target = _place(path, signature, is_new=True)
    Place.of(target).require_free(overwrite=overwrite or update)
    old: Mapping[str, Resource] = {}
    if update:
        public = Key(secret.key.public_key(), secret.hint)
        old = _statement(target, public, DEFAULT_LIMITS).resources
    ignored: tuple[str, ...] = ()
    files = {SINGLE: False}
    if os.path.isdir(root):
        ignored = tuple(dict.fromkeys((*_NEVER_SIGNED, *_inside(root, target))))
        files = _files_in(root, ignored, follows_links=False)
        if not files or any(files.values()):
            links = [name for name, is_link in files.items() if is_link]
            raise ArgumentValueError(
                "only folders of files are signed, without links",
                file=root,
                found=f"a link {describe(links[0])}" if links else "no file",
            )
    workers, resources = thread_count(threads), {}
    counter = _Counter(progress, (_at(root, name) for name in files))
    for name in files:
        resources[name] = _signed(_at(root, name), old.get(name), workers, counter)
    own_name = os.path.basename(root)
    sink = Place.of(target).sink(durable)
    try:
        sink.write(emit(Statement(own_name, resources, ignored), secret))
        sink.commit()
    finally:
        sink.abort()
    kept = [name for name in files if resources[name] is old.get(name)]
    hashed = sum(resources[name].part_count for name in files if name not in kept)
    signed = sum(resource.part_count for resource in resources.values())
    return SignatureReport(secret.fingerprint, len(files) - len(kept), len(kept), hashed, signed)


def verify(
    path: Openable,
    signed_by: Path | bytes,
    *,
    signature: Path | None = None,
    names: Iterable[str] | None = None,
    ignore_unsigned: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SignatureReport:
    """Check a signature, and all files under it; damage of files does not raise.

    Args:
        path: a file, or a local folder. Of a file in a signed folder only this file is checked.
        signed_by: the public key in PEM: a path, or the bytes.
        signature: the signature; by default `<path>.sig`, else `model.sig` in the folder.
        names: objects of zTensor files; only these are read, and no whole file.
        ignore_unsigned: True accepts files in the folder that are not signed.
        threads: how many hash, as in `LoadOptions`.
        progress: called with the bytes of files hashed so far and of all of them.

    Raises:
        SignatureError: the signature is not valid, or of another file or manifest.
        UnsupportedError: it is not signed by a key, or the hashes are unknown here.
        FormatError: a file is so damaged that it cannot be opened.
        SourceError: a file cannot be read, or there is no signature.
    """
    key = public_key(signed_by)
    place = _place(path, signature)
    statement = _statement(place, key, DEFAULT_LIMITS)
    root, resources = _covered(path, statement)
    noted, workers = _noted(resources), thread_count(threads)
    report = _NOTHING_READ
    if noted:
        with contextlib.closing(
            _under(path, root, noted, {"mmap": False, "verify": True})
        ) as objects:
            report = objects.check(names, threads=threads)
    elif root is None:
        with contextlib.suppress(NotZTensorError), open_reader(path, mmap=False) as file:
            report = file.verify(names, threads=threads)
    signed, files = sum(resource.part_count for resource in noted.values()), 0
    checked = report.checked if noted else 0
    if names is None or not noted:
        files = len(resources)
        problems = [*_unfit(root, statement, place, refuses_unsigned=not ignore_unsigned)]
        places = {name: path if root is None else _at(root, name) for name in resources}
        counter = _Counter(progress, places.values())
        wrong: dict[str, Problem | None] = dict.fromkeys(resources)

        def check(name: str) -> None:
            wrong[name] = _compared(places[name], name, resources[name], counter)

        run_jobs((functools.partial(check, name) for name in resources), workers)
        problems += filter(None, wrong.values())
        unchecked = report.unchecked if problems else {}
        problems = [*report.problems, *problems]
        report = dataclasses.replace(report, problems=tuple(problems), unchecked=unchecked)
    return SignatureReport(key.fingerprint, files, 0, checked, signed, report)


def open(
    path: Openable,
    signed_by: Path | bytes,
    *,
    signature: Path | None = None,
    **options: Unpack[OpenOptions],
) -> SignedReader:
    """Open a zTensor file, or a local folder of shards, under a signature of `sign`.

    This checks the signature, and that the manifest is the signed one. Data is compared with its
    signed digest when it is read, and before a view of it is returned: a slice reads the whole
    component once. Views show what another process writes into the file later; `mmap=False` reads
    copies.

    Args:
        path: a file, or a folder; of a folder the signed files directly in it are opened, and no
            index is read.
        signed_by: the public key in PEM: a path, or the bytes.
        signature: the signature; by default `<path>.sig`, else `model.sig` in the folder.
        options: see `ztensor.typing.OpenOptions`; `verify` can only be True.

    Raises:
        SignatureError: the signature is not valid, or of another file or manifest.
        UnsupportedError: the signature covers only whole files, as those of other programs do: use
            `verify`.
        FormatError: a file is damaged.
        SourceError: a file cannot be read, or there is no signature.
    """
    require_options("ztensor.signing.open", options, OpenOptions)
    if options.get("verify") not in (None, True):
        raise ArgumentValueError("signed data is always checked", expected="verify=True")
    key = public_key(signed_by)
    place = _place(path, signature)
    statement = _statement(place, key, caps_of(options.get("limits")))
    root, resources = _covered(path, statement)
    noted = _noted(resources)
    if not noted:
        error = UnsupportedError(
            "the signature covers only whole files, which `ztensor verify --signed-by` checks",
            reason=Reason.FIELD_MISSING,
            file=place,
        )
        error.hint = "`ztensor sign` signs the tensors of .zt files for reading"
        raise error
    options["verify"] = True
    objects = _under(path, root, noted, options)
    reopen = functools.partial(open, path, signed_by, signature=signature, **options)
    return SignedReader(objects, key.fingerprint, reopen)


def _under(
    path: Openable, root: str | None, noted: Mapping[str, Resource], options: OpenOptions
) -> Objects:
    """Return the objects of signed files, each compared with its signed digest when it is read."""

    def signed(file: FileObjects, _names: object) -> FileObjects:
        name = next(iter(noted)) if root is None else os.path.basename(file.name)
        return under_notes(file, noted[name].notes)

    given: Any = path if root is None else [os.path.join(root, name) for name in noted]
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(open_reader(given, **options))
        objects = reader.objects.changed_by(signed)
        stack.pop_all()
    return objects


# --- Signatures -------------------------------------------------------------------------------


def _place(path: Openable, signature: Path | None, *, is_new: bool = False) -> Any:
    """Return the caller's signature, or the place where it belongs."""
    if signature is not None:
        return signature
    text = path_text(path)
    if is_remote(text):
        beside = f"{text}.sig"
        return Remote(beside, path.storage, path.cache) if isinstance(path, Remote) else beside
    if os.path.isdir(text):
        return os.path.join(text, _OF_FOLDERS)
    of_folder = os.path.join(os.path.dirname(text), _OF_FOLDERS)
    is_in_folder = not is_new and os.path.isfile(of_folder) and not os.path.exists(f"{text}.sig")
    return of_folder if is_in_folder else f"{text}.sig"


def _statement(place: Any, key: Key, limits: Limits) -> Statement:
    """Return the statement of a signature of this key."""
    with contextlib.closing(source_of(place, mapped=False)) as source:
        if source.size > limits.index_bytes:
            raise LimitError(
                "the signature is longer than Limits.index_bytes",
                reason=Reason.LIMIT_MANIFEST,
                file=source.name,
                expected=f"at most {limits.index_bytes} bytes",
                found=str(source.size),
            )
        return parse(bytes(source.read(0, source.size)), key, limits, source.name)


def _covered(path: Openable, statement: Statement) -> tuple[str | None, Mapping[str, Resource]]:
    """Return the folder (None for a file) and its resources; of a file its only resource.

    Raises:
        SignatureError: the signature is not of this file, or not of a folder.
    """
    text = path_text(path) if isinstance(path, (str, os.PathLike)) else ""
    root = os.path.abspath(text) if os.path.isdir(text) else None
    resources = statement.resources
    if root is not None and SINGLE not in resources:
        return root, resources
    name = SINGLE if SINGLE in resources else os.path.basename(text)
    if root is not None or name not in resources:
        raise SignatureError(
            "the signature is of something else",
            reason=Reason.FIELD_VALUE,
            file=text or None,
            expected="a file" if SINGLE in resources else f"one of {describe([*resources])}",
            found="a folder" if root is not None else describe(name),
        )
    return None, {name: resources[name]}


def _noted(resources: Mapping[str, Resource]) -> dict[str, Resource]:
    """Return the resources that are opened: files of tensors directly in the folder."""
    if _CHECKPOINT in resources and len(resources) > 1:
        return {}  # parts of many processes, which only their root explains
    return {name: file for name, file in resources.items() if file.notes and "/" not in name}


# --- Files ------------------------------------------------------------------------------------


def _at(root: str, name: str) -> Any:
    """Return what opens a resource, which may be no link out of the folder."""
    if name == SINGLE:
        return root
    path = os.path.join(root, *name.split("/"))
    return Beneath(path, frozenset((os.path.realpath(root),)), may_be_hidden=True)


def _files_in(root: str, ignored: Iterable[str], *, follows_links: bool) -> dict[str, bool]:
    """Return the paths in a folder, sorted, and whether each is a link that is not followed."""
    left_out = {path.strip("/") for path in ignored}
    found, folders = {}, [""]
    while folders:
        folder = folders.pop()
        path = os.path.join(root, folder)
        with system_call("cannot list", path), os.scandir(path) as entries:
            for entry in entries:
                name = folder + entry.name
                if name in left_out:
                    continue
                is_link = entry.is_symlink() and not (follows_links and entry.is_file())
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    found[name] = is_link
    return dict(sorted(found.items()))


def _inside(root: str, path: Any) -> tuple[str, ...]:
    """Return the path of a signature in a folder; nothing if it is elsewhere."""
    if not isinstance(path, (str, os.PathLike)) or is_remote(path_text(path)):
        return ()
    name = os.path.relpath(os.path.abspath(path_text(path)), root).replace(os.sep, "/")
    return () if name.startswith("../") else (name,)


def _signed(place: Any, old: Resource | None, workers: int, counter: _Counter) -> Resource:
    """Return the resource of a file; `old` if its notes are still right."""
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(source_of(place, mapped=False)))
        notes = None
        if _has_manifest(source):
            file = stack.enter_context(contextlib.closing(open_file(place, mmap=False)))
            if old is not None and old.notes is not None and is_as_noted(file, old.notes):
                counter.add(source.size)
                return old
            notes = notes_of(file, workers)
        resource = Resource(_hash(source, counter), notes=notes)
        source.require_unchanged()
        return resource


def _has_manifest(source: Source) -> bool:
    """Return whether a file is one of zTensor; a data shard of 2.x has no manifest."""
    if not source.size:
        return False
    try:
        return FileObjects.frame_in(source, DEFAULT_LIMITS).manifest_length > 0
    except (NotZTensorError, UnsupportedVersionError):
        return False


def _hash(source: Source, counter: _Counter) -> str:
    return sha256_of(counter.over(Range(source, 0, source.size).pieces()))


def _unfit(
    root: str | None, statement: Statement, signature: Any, *, refuses_unsigned: bool
) -> Iterable[Problem]:
    """Yield the problems of a folder's list: links, and files that were not signed."""
    if root is None:
        return
    ignored = (*_NEVER_SIGNED, *statement.ignored, *_inside(root, signature))
    for name, is_link in _files_in(root, ignored, follows_links=statement.follows_links).items():
        if is_link:
            yield Problem(Reason.SOURCE_NOT_REGULAR, "a link, which is not signed", (name,))
        elif refuses_unsigned and name not in statement.resources:
            yield Problem(Reason.SHARD_FILE, "the file is in the folder, but not signed", (name,))


def _compared(place: Any, name: str, resource: Resource, counter: _Counter) -> Problem | None:
    """Return the problem of a file that is missing or not as it was signed."""
    try:
        with contextlib.closing(source_of(place, mapped=False)) as source:
            found = _hash(source, counter)
    except SourceNotFoundError:
        return Problem(Reason.SOURCE_NOT_FOUND, "a signed file is missing", (name,))
    if found == resource.digest:
        return None
    message = f"not the file that was signed: expected {resource.digest}, found {found}"
    return Problem(Reason.DIGEST_MISMATCH, message, (name,))


class _Counter:
    """Reports the bytes of files that were hashed so far.

    Args:
        progress: the caller's function, or None.
        places: what opens the files.
    """

    def __init__(self, progress: Progress | None, places: Iterable[Any]) -> None:
        if progress is not None and not callable(progress):
            raise ArgumentTypeError("progress must be a function", found=describe(progress))
        self._progress, self._lock, self._done, self._total = progress, Lock(), 0, 0
        if progress is not None:
            for place in places:
                with (
                    contextlib.suppress(SourceError),
                    contextlib.closing(source_of(place, mapped=False)) as source,
                ):
                    self._total += source.size

    def over(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield pieces, and report each of them."""
        for piece in pieces:
            yield piece
            self.add(len(piece))

    def add(self, nbytes: int) -> None:
        """Report more bytes."""
        if self._progress is not None:
            with self._lock:
                self._done += nbytes
                self._progress(min(self._done, self._total), self._total)
