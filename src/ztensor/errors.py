"""All exceptions and reason codes of the library, and a broken rule as a value.

The family names the cause: the file (`FormatError`), this installation (`UnsupportedError`), a
safety cap (`LimitError`), the system (`SourceError`) or the caller (`UsageError`). A bug of the
library raises Python's own exception. The reason code names the rule: tests assert the code,
people read the message.
"""

from __future__ import annotations

import enum
import errno as _errno
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from ztensor.showing import counted as counted
from ztensor.showing import describe as describe
from ztensor.showing import near_names as near_names
from ztensor.showing import printable
from ztensor.showing import secrets_of as secrets_of
from ztensor.showing import without_secrets as without_secrets

__all__ = [
    "ArgumentTypeError", "ArgumentValueError", "BufferExportError", "ClosedError",
    "ContainerError", "DigestMismatchError", "EncodingError", "FormatError", "LayoutError",
    "LimitError", "ManifestError", "MissingDependencyError", "NotRepresentableError",
    "NotZTensorError", "ObjectNotFoundError", "Problem", "Reason", "SourceError",
    "SourceNotFoundError", "SourceNotRegularError", "SourcePermissionError", "UnsupportedError",
    "UnsupportedVersionError", "UsageError", "ZTensorError",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class Reason(enum.StrEnum):
    """The rule that was broken. Closed: a new rule is a new member and a new corpus file."""

    # The container: magics, sizes, offset of the manifest.
    NOT_ZTENSOR = "not_ztensor"
    HEADER_MAGIC = "header_magic"
    FOOTER_MAGIC = "footer_magic"
    TRUNCATED = "truncated"
    MANIFEST_SIZE = "manifest_size"
    # CBOR, the manifest's encoding.
    CBOR_TRUNCATED = "cbor_truncated"
    CBOR_MALFORMED = "cbor_malformed"
    CBOR_TRAILING = "cbor_trailing"
    CBOR_DUPLICATE_KEY = "cbor_duplicate_key"
    CBOR_UTF8 = "cbor_utf8"
    CBOR_FORM = "cbor_form"
    # The manifest's fields.
    FIELD_MISSING = "field_missing"
    FIELD_TYPE = "field_type"
    FIELD_VALUE = "field_value"
    DUPLICATE_NAME = "duplicate_name"
    MANIFEST_DIGEST = "manifest_digest"
    # Extents and elements of components.
    OFFSET_ALIGNMENT = "offset_alignment"
    OUT_OF_BOUNDS = "out_of_bounds"
    BLOB_OVERLAP = "blob_overlap"
    SIZE_MISMATCH = "size_mismatch"
    TYPE_MISMATCH = "type_mismatch"
    BOOL_VALUE = "bool_value"
    PADDING_VALUE = "padding_value"
    # Stored bytes.
    DIGEST_MALFORMED = "digest_malformed"
    DIGEST_MISMATCH = "digest_mismatch"
    ENCODING_MALFORMED = "encoding_malformed"
    ENCODING_TRUNCATED = "encoding_truncated"
    DECODED_SHORT = "decoded_short"
    DECODED_LONG = "decoded_long"
    # Layouts.
    COMPONENT_MISSING = "component_missing"
    LAYOUT_RANK = "layout_rank"
    LAYOUT_COUNT = "layout_count"
    INDEX_DTYPE = "index_dtype"
    INDEX_POINTERS = "index_pointers"
    INDEX_RANGE = "index_range"
    INDEX_ORDER = "index_order"
    QUANTIZATION = "quantization"
    # Sets of files.
    SHARD_INDEX = "shard_index"
    SHARD_FILE = "shard_file"
    # Pickles of other formats.
    PICKLE_CALL = "pickle_call"
    # A parser failed on the bytes, and no rule above names the fault.
    UNFORESEEN = "unforeseen"
    # Well-formed, but unknown to this release or this machine.
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_DTYPE = "unknown_dtype"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_ENCODING = "unknown_encoding"
    UNKNOWN_LAYOUT = "unknown_layout"
    MISSING_DEPENDENCY = "missing_dependency"
    BROKEN_PLUGIN = "broken_plugin"
    # Refused for safety.
    LIMIT_DEPTH = "limit_depth"
    LIMIT_MANIFEST = "limit_manifest"
    LIMIT_RANK = "limit_rank"
    LIMIT_DECODED = "limit_decoded"
    LIMIT_WINDOW = "limit_window"
    LIMIT_COST = "limit_cost"
    LIMIT_MEMORY = "limit_memory"
    LIMIT_STACK = "limit_stack"
    # The operating system.
    SOURCE_NOT_FOUND = "source_not_found"
    SOURCE_PERMISSION = "source_permission"
    SOURCE_NOT_REGULAR = "source_not_regular"
    SOURCE_CHANGED = "source_changed"
    SOURCE_LOCKED = "source_locked"
    SOURCE_FAILED = "source_failed"
    # The caller.
    OBJECT_NOT_FOUND = "object_not_found"
    CLOSED = "closed"
    ARGUMENT = "argument"
    NOT_REPRESENTABLE = "not_representable"
    DUPLICATE_WRITE = "duplicate_write"


# The most problems to report for a file, in which a million may be wrong.
MOST_PROBLEMS = 256


class Problem(NamedTuple):
    """One broken rule, with the path from the file's root to its place.

    Attributes:
        reason: the rule's code.
        message: one sentence with the expected and the found value.
        path: steps from the root, such as `("objects", "w", "components", "data", "offset")`.
        section: the specification's section.
        object_name: the object concerned, or None for the file as a whole.
        component: the component's role, or None.
    """

    reason: Reason
    message: str
    path: tuple[str | int, ...] = ()
    section: str | None = None
    object_name: str | None = None
    component: str | None = None

    def under(self, *steps: str | int) -> Problem:
        """Return the problem with `steps` in front of its path."""
        return self._replace(path=(*steps, *self.path))

    def about(self, object_name: str, component: str | None = None) -> Problem:
        """Return the problem with the name of its object, and of its component if known."""
        return self._replace(object_name=object_name, component=self.component or component)

    def without_our_section(self) -> Problem:
        """Return the problem without a section of our specification, for another format."""
        return self._replace(section=None) if _is_ours(self.section) else self

    def __str__(self) -> str:
        """Return path, sentence and section on one line, safe to print."""
        path = "".join(f"[{describe(step, 60)}]" for step in self.path)
        text = f"{path}: {self.message}" if path else self.message
        return f"{text} ({self.section})" if self.section else text


def _is_ours(section: str | None) -> bool:
    """Return whether a section is of our specification, such as `1.2 section 3`."""
    return section is not None and re.match(r"\d+\.\d+ section ", section) is not None


class ZTensorError(Exception):
    """Base of every error this library raises on purpose.

    Attributes:
        message: the fault, without its place.
        reason: the rule's code; None if no rule of a file is broken.
        file: path or name of the file; None if unknown.
        object_name: name of the object; None if unknown.
        component: role of the component; None if unknown.
        expected: the value that the rule requires, as text.
        found: the actual value, as text; in a `UsageError` the caller's argument.
        section: the specification's section, as text.
        hint: a sentence with the next step, or None.
        in_python: a next step in Python, which the command does not print; or None.
    """

    _default_reason: Reason | None = None

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        file: str | None = None,
        object_name: str | None = None,
        component: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        section: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason: Reason | None = reason if reason is not None else self._default_reason
        self.file = file
        self.object_name = object_name
        self.component = component
        self.expected = expected
        self.found = found
        self.section = section
        self.hint: str | None = None
        self.in_python: str | None = None

    @property
    def file(self) -> str | None:
        """Return the path or name of the file; a URL without its secrets."""
        return self._file

    @file.setter
    def file(self, name: str | None) -> None:
        self._file = None if name is None else without_secrets(name)

    def locate(
        self,
        *,
        file: str | None = None,
        object_name: str | None = None,
        component: str | None = None,
    ) -> Self:
        """Fill in the unknown parts of the place, and return this error.

        Parsers raise without file or object; readers and writers add them.
        """
        self.file = self.file if self.file is not None else file
        self.object_name = self.object_name if self.object_name is not None else object_name
        self.component = self.component if self.component is not None else component
        return self

    def forget_sections(self) -> None:
        """Remove sections of our specification: the file has another format."""
        self.section = None if _is_ours(self.section) else self.section
        self.message = re.sub(r" \(\d+\.\d+ section [^()]*\)", "", self.message)

    def __str__(self) -> str:
        """Return place, sentence, expectation, finding, section and hints on one line."""
        text = self.told()
        return f"{text}; {self.in_python}" if self.in_python else text

    def told(self) -> str:
        """Return the text without `in_python`, for users of the command."""
        place = [] if self.file is None else [printable(self.file)]
        if self.object_name is not None:
            place.append(f"object {describe(self.object_name)}")
        if self.component is not None:
            place.append(f"component {describe(self.component)}")
        text = f"{', '.join(place)}: {self.message}" if place else self.message
        if facts := self._facts():
            text += ": " + ", ".join(facts)
        if self.section:
            text += f" ({self.section})"
        return f"{text}; {self.hint}" if self.hint else text

    def _facts(self) -> list[str]:
        facts = [] if self.expected is None else [f"expected {self.expected}"]
        return facts if self.found is None else [*facts, f"found {self.found}"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle class and attributes, so that worker processes can return errors."""
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state.update(errno=self.errno, strerror=self.strerror, filename=self.filename)
        return _restore, (type(self), self.args), state


def _restore(kind: type[ZTensorError], args: tuple[Any, ...]) -> ZTensorError:
    error = kind.__new__(kind)
    error.args = args
    return error


# --- The bytes break the specification ------------------------------------------------------


class FormatError(ZTensorError, ValueError, RuntimeError):
    """The bytes of a file break its specification."""


class NotZTensorError(FormatError):
    """The file does not begin like any version of zTensor."""

    _default_reason = Reason.NOT_ZTENSOR


class ContainerError(FormatError):
    """The framing is broken: magics, sizes, truncation."""


class ManifestError(FormatError):
    """The manifest is not well-formed or breaks rules; `problems` lists them all.

    Attributes:
        problems: each problem as a value with `path`, `reason` and `message`.
    """

    def __init__(self, message: str, *, problems: Sequence[Problem] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def forget_sections(self) -> None:
        """Remove sections of our specification, from the problems as well."""
        super().forget_sections()
        self.problems = tuple(map(Problem.without_our_section, self.problems))


class EncodingError(FormatError):
    """Stored bytes do not decode, or not to the length in the manifest."""


class DigestMismatchError(FormatError):
    """Stored bytes differ from the digest in the manifest.

    Attributes:
        algorithm: name of the digest's algorithm.
        expected: digest in the manifest, hexadecimal.
        actual: digest of the stored bytes, hexadecimal.
    """

    _default_reason = Reason.DIGEST_MISMATCH

    def __init__(
        self, message: str, *, algorithm: str = "", actual: str = "", **details: Any
    ) -> None:
        super().__init__(message, **details)
        self.algorithm = algorithm
        self.actual = actual


class LayoutError(FormatError):
    """The components of an object break a rule of its layout."""


# --- Well-formed, but unknown here ----------------------------------------------------------


class UnsupportedError(ZTensorError, RuntimeError):
    """Well-formed, but this release or this machine does not know it."""


class UnsupportedVersionError(UnsupportedError):
    """The file belongs to a container or major version this release does not read."""

    _default_reason = Reason.UNKNOWN_VERSION


class MissingDependencyError(UnsupportedError, ImportError):
    """An optional library is missing; the message ends with the command that installs it.

    Args:
        message: the feature that needs the library.
        install: the packages, as arguments of `pip install`.
    """

    _default_reason = Reason.MISSING_DEPENDENCY

    def __init__(self, message: str, *, install: str = "", **details: Any) -> None:
        super().__init__(f"{message}: pip install {install}" if install else message, **details)


class LimitError(ZTensorError, ValueError, RuntimeError):
    """A safety cap was exceeded; the message names it and how to raise it (`ztensor.Limits`).

    Also raised if memory or Python's stack runs out.
    """

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message, **details)
        cap = re.search(r"\bLimits\.([a-z_]+)", message)
        if cap is not None:
            self.in_python = (
                f"if you trust the file, limits=ztensor.Limits({cap[1]}=...) allows more"
            )


# --- The operating system -------------------------------------------------------------------


class SourceError(ZTensorError, OSError):
    """Bytes could not be fetched or stored; `errno` is the system's, or None."""

    _default_reason = Reason.SOURCE_FAILED

    def __init__(self, message: str, *, errno: int | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.errno = errno
        self.strerror = message
        self.filename = self.file

    @staticmethod
    def from_os(error: OSError, doing: str, file: str | None) -> SourceError:
        """Return the error of this family for an error of the system, with its errno.

        Args:
            error: the error of the system.
            doing: the failed attempt, such as "cannot open for reading".
            file: path or name of the file.
        """
        kind: type[SourceError] = SourceError
        if isinstance(error, FileNotFoundError):
            kind = SourceNotFoundError
        elif isinstance(error, PermissionError):
            kind = SourcePermissionError
        elif error.errno == _errno.EISDIR:
            kind = SourceNotRegularError
        detail = error.strerror or str(error) or type(error).__name__
        return kind(f"{doing}: {detail}", errno=error.errno, file=file)


class system_call:  # lower case, as it is used: with system_call("cannot remove", path): ...
    """A context that turns errors of the system into `SourceError`.

    Args:
        doing: the attempt, such as "cannot open for reading".
        file: path or name of the file.
    """

    __slots__ = ("_doing", "_file")

    def __init__(self, doing: str, file: str) -> None:
        self._doing, self._file = doing, file

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, SourceError):
            raise SourceError.from_os(error, self._doing, self._file) from error


class SourceNotFoundError(SourceError, FileNotFoundError):
    """No file at that path."""

    _default_reason = Reason.SOURCE_NOT_FOUND


class SourcePermissionError(SourceError, PermissionError):
    """The system does not allow it."""

    _default_reason = Reason.SOURCE_PERMISSION


class SourceNotRegularError(SourceError):
    """A folder, device or pipe where a regular file is needed."""

    _default_reason = Reason.SOURCE_NOT_REGULAR


# --- The caller -----------------------------------------------------------------------------


class UsageError(ZTensorError, RuntimeError):
    """A mistake in the call; the message names an alternative."""

    _default_reason = Reason.ARGUMENT

    def _facts(self) -> list[str]:
        # The argument is quoted without "found", which is for the content of files.
        facts = [] if self.found is None else [self.found]
        return facts if self.expected is None else [*facts, f"expected {self.expected}"]


class ArgumentValueError(UsageError, ValueError):
    """An argument has an invalid value."""


class ArgumentTypeError(UsageError, TypeError, ValueError):
    """An argument has an invalid type.

    Also a `ValueError`, which safetensors and released versions raise for most such mistakes.
    """


class ObjectNotFoundError(UsageError, KeyError):
    """No object of that name in the file."""

    _default_reason = Reason.OBJECT_NOT_FOUND

    @staticmethod
    def named(
        name: object, names: Iterable[str], file: str | None, noun: str = "object"
    ) -> ObjectNotFoundError | ArgumentTypeError:
        """Return the error for an unknown name, with similar names as a hint.

        Args:
            name: the caller's name.
            names: the existing names.
            file: path or name of the file.
            noun: the kind of things that have the names.
        """
        if not isinstance(name, str):
            return ArgumentTypeError(
                f"the name of the {noun} must be text", file=file, found=describe(name)
            )
        near, count = near_names(name, names)
        error = ObjectNotFoundError(f"no {noun} named {describe(name)} among {count}", file=file)
        error.found = describe(name)
        if near:
            error.hint = f"did you mean {' or '.join(map(describe, near))}?"
        return error

    def _facts(self) -> list[str]:
        return [] if self.found is None or self.found in self.message else super()._facts()


class ClosedError(UsageError):
    """The reader or writer was closed, finished or aborted."""

    _default_reason = Reason.CLOSED


class NotRepresentableError(UsageError, ValueError, TypeError):
    """The value cannot be stored in the chosen version; the message names an alternative."""

    _default_reason = Reason.NOT_REPRESENTABLE


class BufferExportError(UsageError, BufferError):
    """The array cannot be exported by DLPack or as a buffer."""

    _default_reason = Reason.NOT_REPRESENTABLE
