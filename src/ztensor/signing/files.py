"""Sign files and folders, verify them, and open zTensor files under a signature."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ztensor import Reader, Remote, UnsupportedError, ZTensorError, ext
from ztensor import open as open_reader
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    LimitError,
    NotZTensorError,
    Problem,
    Reason,
    SourceNotFoundError,
    UsageError,
    describe,
    system_call,
)
from ztensor.limits import DEFAULT_LIMITS, Limits, caps_of
from ztensor.options import OpenOptions, require_options, summed
from ztensor.signing.bundle import (
    BUNDLE,
    SINGLE,
    Resource,
    Statement,
    emit,
    is_path,
    parse,
    require,
)
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
    """The result of `sign` or `verify`.

    Attributes:
        key: fingerprint of the public key: `SHA256:` and hexadecimal digits.
        files: number of whole files that were hashed.
        kept: number of files of which `sign(update=True)` kept the digests.
        components: number of components that were hashed.
        signed: number of components that the signature covers one by one.
        contents: problems that `verify` found in files and in components of zTensor files.
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

    def __init__(self, objects: ext.Objects, key: str, reopen: Callable[[], SignedReader]) -> None:
        ext.ObjectReader.__init__(self, objects)
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

    zTensor files are read twice: for the digest of the file, and for the digests of components.

    Args:
        path: a file of any format, or a folder without links. Git's files in it are left out.
        key: the private key in PEM: a path, or the bytes.
        signature: where the signature goes; by default `<path>.sig`, of a folder `model.sig` in it.
        password: the password of an encrypted private key.
        update: True replaces a signature by the same key, and keeps its digests of each zTensor
            file with the same length and manifest, if each component has a digest there.
        overwrite: True replaces a signature that is where the new one goes.
        durable: as in `SaveOptions`.
        threads: how many hash, as in `LoadOptions`.
        progress: called with the bytes of files hashed so far and of all of them.

    Raises:
        FormatError: a zTensor file is damaged.
        SignatureError: with `update`: the old signature is not valid.
        UsageError: there is a file where the signature goes, or one that is no signature.
        ArgumentValueError: the key cannot be used, or the folder has links, no file, or a name that
            is not Unicode or has a backslash.
        SourceError: a file cannot be read, or the signature not written.
    """
    text = ext.path_text(path, local=True)
    if ext.is_remote(text):
        raise UsageError("sign local files, and copy the signature to the store", file=text)
    root = os.path.abspath(text)
    target, secret = _place(path, signature, is_new=True), private_key(key, password)
    ext.Place.of(target).require_free(overwrite=overwrite or update)
    _require_signature(target)
    old = _statement(target, secret.public, DEFAULT_LIMITS).resources if update else {}
    ignored: tuple[str, ...] = ()
    if is_folder := os.path.isdir(root):
        ignored = tuple(dict.fromkeys((*_NEVER_SIGNED, *_inside(root, target))))
        files = _listed(root, ignored)
        wrong = [
            f"the {'link' if nbytes is None else 'name'} {describe(name)}"
            for name, nbytes in files.items()
            if nbytes is None or not is_path(name)
        ]
        if wrong or not files:
            message = "a folder of files is signed, whose names are Unicode without a backslash"
            raise ArgumentValueError(message, file=root, found=(wrong or ["no file"])[0])
    elif _is_root(root):
        raise ArgumentValueError("sign the folder of a checkpoint with all of its parts", file=root)
    else:
        files = {SINGLE: _size(root)}
    workers, report = ext.thread_count(threads), summed(progress, sum(filter(None, files.values())))
    resources: dict[str, Resource] = {}

    def one(name: str) -> None:
        place = _at(root if is_folder else None, root, name)
        each = workers if len(files) == 1 else 1
        resources[name] = _signed(place, old.get(name), each, report)

    ext.run_jobs((functools.partial(one, name) for name in files), workers)
    statement = Statement(os.path.basename(root), resources, ignored)
    with ext.Place.of(target).written(durable) as sink:
        sink.write(emit(statement, secret))
    new = [resource for name, resource in resources.items() if resource is not old.get(name)]
    hashed, signed = (sum(x.part_count for x in some) for some in (new, resources.values()))
    return SignatureReport(secret.fingerprint, len(new), len(files) - len(new), hashed, signed)


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
        SourceError: a file or the signature cannot be read.
    """
    key, place, workers = public_key(signed_by), _place(path, signature), ext.thread_count(threads)
    statement = _statement(place, key, DEFAULT_LIMITS)
    root, resources = _covered(path, statement)
    noted, report, problems = _noted(resources), _NOTHING_READ, list[Problem]()
    files: Mapping[str, int | None] = {SINGLE: _size(path)} if root is None else {}
    if root is not None:
        ignored = (*_NEVER_SIGNED, *statement.ignored, *_inside(root, place))
        files = _listed(root, ignored)
        for name, nbytes in files.items():
            if nbytes is None:
                problems.append(Problem(Reason.SOURCE_NOT_REGULAR, "an unsigned link", (name,)))
            elif name not in resources and not ignore_unsigned:
                problems.append(Problem(Reason.SHARD_FILE, "an unsigned file", (name,)))
    counter = summed(progress, sum(filter(None, files.values())))
    wrong: dict[str, Problem | None] = {}
    whole = list(resources) if names is None or not noted else []

    def read() -> None:
        nonlocal report
        report = _read(path, root, noted, names, max(1, workers - bool(whole)))

    def compare(name: str) -> None:
        wrong[name] = _compared(_at(root, path, name), name, resources[name], counter)

    ext.run_jobs([read, *(functools.partial(compare, name) for name in whole)], workers)
    problems += filter(None, map(wrong.get, whole))
    if whole and not problems:
        report = dataclasses.replace(report, unchecked={})  # a digest covers all bytes
    read_nbytes = max(report.nbytes, sum(filter(None, files.values())) if whole else 0)
    problems = [*report.problems, *problems]
    report = dataclasses.replace(report, problems=tuple(problems), nbytes=read_nbytes)
    signed = sum(resource.part_count for resource in noted.values())
    return SignatureReport(
        key.fingerprint, len(whole), 0, report.checked if noted else 0, signed, report
    )


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
        UnsupportedError: the signature covers only whole files, like one by another program: use
            `verify`.
        FormatError: a file is damaged.
        SourceError: a file or the signature cannot be read.
    """
    require_options("ztensor.signing.open", options, OpenOptions)
    if options.get("verify") not in (None, True):
        raise ArgumentValueError("signed data is always checked", expected="verify=True")
    how: dict[str, Any] = {**options, "verify": True}
    of_store = {name: how.pop(name, None) for name in ("storage", "cache", "storage_options")}
    if any(option is not None for option in of_store.values()):
        path = Remote(ext.path_text(path), **of_store)  # the signature is in the same store
    key, place = public_key(signed_by), _place(path, signature)
    statement = _statement(place, key, caps_of(options.get("limits")))
    root, resources = _covered(path, statement)
    if not (noted := _noted(resources)):
        message = (
            "the signature covers only whole files, which `ztensor verify --signed-by` checks; "
            "tensors of .zt files are read under a signature of `ztensor sign`"
        )
        raise UnsupportedError(message, reason=Reason.FIELD_MISSING, file=ext.path_text(place))
    reopen = functools.partial(open, path, signed_by, signature=signature, **how)
    return SignedReader(_under(path, root, noted, how), key.fingerprint, reopen)


def _read(
    path: Any,
    root: str | None,
    noted: Mapping[str, Resource],
    names: Iterable[str] | None,
    threads: int,
) -> VerifyReport:
    """Return the report on the contents of files; each component has a signed digest if noted."""
    if root is None and not noted:
        with contextlib.suppress(NotZTensorError), open_reader(path, mmap=False) as file:
            return file.verify(names, threads=threads)
    how = {"mmap": False, "verify": True}
    if noted and (root is None or names is not None):
        with contextlib.closing(_under(path, root, noted, how)) as objects:
            return objects.check(names, threads=threads)
    found: dict[str, VerifyReport | ZTensorError] = {}
    for name, resource in noted.items():
        try:
            opened = _under(_at(root, path, name), None, {name: resource}, how)
            with contextlib.closing(opened) as objects:
                found[name] = objects.check(threads=threads)
        except ZTensorError as error:
            found[name] = error
    return VerifyReport.of_files(found.items())


def _under(
    path: Openable, root: str | None, noted: Mapping[str, Resource], options: Any
) -> ext.Objects:
    """Return the objects of signed files, each compared with its signed digest when it is read."""

    def signed(file: ext.FileObjects, _names: object) -> ext.FileObjects:
        name = next(iter(noted)) if root is None else os.path.basename(file.name)
        return under_notes(file, noted[name].notes or {})

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
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError("this source has no path: name its signature by signature=")
    text = ext.path_text(path, local=True)
    beside = f"{text}.sig"
    if isinstance(path, Remote):
        return Remote(beside, path.storage, path.cache)
    if os.path.isdir(text):
        return os.path.join(text, _OF_FOLDERS)
    of_folder = os.path.join(os.path.dirname(text), _OF_FOLDERS)
    is_in_folder = not is_new and not os.path.exists(beside) and os.path.isfile(of_folder)
    return of_folder if is_in_folder else beside


def _require_signature(target: Path) -> None:
    """Raise if there is a file that is no signature: a model or a key must not be replaced.

    Raises:
        UsageError: there is one.
    """
    with (
        contextlib.suppress(SourceNotFoundError),
        contextlib.closing(ext.source_of(target, mapped=False)) as source,
    ):
        if BUNDLE not in bytes(source.read(0, min(source.size, DEFAULT_LIMITS.index_bytes))):
            raise UsageError("the file there is no signature; it is kept", file=source.name)


def _statement(place: Any, key: Key, limits: Limits) -> Statement:
    """Return the statement of a signature of this key."""
    with contextlib.closing(ext.source_of(place, mapped=False)) as source:
        if source.size > limits.index_bytes:
            message = f"the signature has {source.size} bytes, more than Limits.index_bytes"
            raise LimitError(message, reason=Reason.LIMIT_MANIFEST, file=source.name)
        return parse(bytes(source.read(0, source.size)), key, limits, source.name)


def _covered(path: Openable, statement: Statement) -> tuple[str | None, Mapping[str, Resource]]:
    """Return the folder (None without one) and its resources; of a file its only resource.

    Raises:
        SignatureError: the signature is not of this file, or not of a folder.
    """
    text = ext.path_text(path, local=True) if isinstance(path, (str, os.PathLike)) else ""
    root, resources = os.path.abspath(text) if os.path.isdir(text) else None, statement.resources
    if root is not None and SINGLE not in resources:
        return root, resources
    name = SINGLE if SINGLE in resources else os.path.basename(text)
    is_covered, found = root is None and name in resources, name if root is None else "a folder"
    facts: Any = {"expected": describe([*resources], 300), "found": describe(found)}
    require(is_covered, "the signature is of another file", file=text or None, **facts)
    return None, {name: resources[name]}


def _noted(resources: Mapping[str, Resource]) -> dict[str, Resource]:
    """Return the resources that are opened: files of tensors directly in the folder."""
    root = resources.get(_CHECKPOINT)
    if root is not None and not root.notes:
        return {}  # parts of many processes, which only their root explains
    return {name: file for name, file in resources.items() if file.notes and "/" not in name}


# --- Files ------------------------------------------------------------------------------------


def _at(root: str | None, path: Any, name: str) -> Any:
    """Return a resource to open: the file, or a file in the folder, without links out of it."""
    if root is None:
        return path
    inside = os.path.join(root, *name.split("/"))
    return ext.Beneath(inside, frozenset((os.path.realpath(root),)), may_be_hidden=True)


def _size(given: Any) -> int:
    with contextlib.closing(ext.source_of(given, mapped=False)) as source:
        return source.size


def _listed(root: str, ignored: Iterable[str]) -> dict[str, int | None]:
    """Return the paths in a folder, sorted, with lengths; links have None."""
    left_out = {path.strip("/") for path in ignored}
    found, folders = dict[str, int | None](), [""]
    while folders:
        folder = folders.pop()
        path = os.path.join(root, folder)
        with system_call("cannot list", path), os.scandir(path) as entries:
            for entry in entries:
                if (name := folder + entry.name) in left_out:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    found[name] = None if entry.is_symlink() else entry.stat().st_size
    return dict(sorted(found.items()))


def _inside(root: str, path: Any) -> tuple[str, ...]:
    """Return the path of a signature in a folder; nothing if it is elsewhere."""
    full, start = os.path.realpath(ext.path_text(path)), os.path.join(os.path.realpath(root), "")
    return (full.removeprefix(start).replace(os.sep, "/"),) if full.startswith(start) else ()


def _signed(
    place: Any, old: Resource | None, workers: int, report: Callable[[int], None]
) -> Resource:
    """Return the resource of a file; `old` if its notes are still right."""
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(ext.source_of(place, mapped=False)))
        notes, digest = None, list[str]()

        def hash_whole() -> None:
            digest.append(sha256_of(_counted(source, report)))

        if _has_manifest(source) and not _is_root(source.name):
            file = stack.enter_context(contextlib.closing(ext.open_file(place, mmap=False)))
            if old is not None and old.notes and is_as_noted(file, old.notes):
                return old
            notes = notes_of(file, workers, hash_whole)
            file.source.require_unchanged()
        else:
            hash_whole()
        source.require_unchanged()
        return Resource(digest[0], notes)


def _has_manifest(source: ext.Source) -> bool:
    """Return whether a file is a zTensor file; a data shard of 2.x has no manifest.

    Raises:
        NotZTensorError: it is not, but has the suffix.
    """
    try:
        return ext.FileObjects.frame_in(source, DEFAULT_LIMITS)[2] > 0
    except NotZTensorError:
        if source.name.endswith(".zt"):
            raise
        return False


def _is_root(path: str) -> bool:
    """Return whether a file is the root of a checkpoint, which is opened with all of its parts."""
    if os.path.basename(path) != _CHECKPOINT:
        return False
    with open_reader(path) as reader:
        return getattr(reader.objects, "frame", None) is None


def _compared(
    place: Any, name: str, resource: Resource, report: Callable[[int], None]
) -> Problem | None:
    """Return the problem of a file that is missing or not as it was signed."""
    try:
        with contextlib.closing(ext.source_of(place, mapped=False)) as source:
            found = sha256_of(_counted(source, report))
    except SourceNotFoundError:
        return Problem(Reason.SOURCE_NOT_FOUND, "a signed file is missing", (name,))
    message = f"not the file that was signed: expected {resource.digest}, found {found}"
    is_same = found == resource.digest
    return None if is_same else Problem(Reason.DIGEST_MISMATCH, message, (name,))


def _counted(source: ext.Source, report: Callable[[int], None]) -> Iterator[memoryview]:
    """Yield the bytes of a file in order, and report their number."""
    for piece in ext.Range(source, 0, source.size).pieces():
        yield piece
        report(len(piece))
