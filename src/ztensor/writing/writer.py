"""`Writer`: what users hold of a file that is being written; `output.py` has what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import numpy as np

import ztensor
from ztensor.container import LATEST
from ztensor.errors import ArgumentValueError, describe
from ztensor.interactive import Hinted
from ztensor.model.showing import counted
from ztensor.source.sink import Durable
from ztensor.writing.creating import create
from ztensor.writing.rows import SmallRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    import numpy.typing as npt

    from ztensor.edit.editor import Editor
    from ztensor.reading.reader import ObjectReader
    from ztensor.typing import EditOptions, ElementType, Path, Target, TensorLike, TorchTensor
    from ztensor.writing.output import Output
    from ztensor.writing.stream import ObjectSink


class Writer(Hinted):
    """Writes a zTensor file.

    The file appears when it is finished; until then, and after an exception or `abort`, what was
    at the path is untouched. As a context manager it finishes at the end and aborts on an
    exception.

    Args:
        path: a path, or a file object open for writing bytes, which need not be seekable.
        version: `"1.2.0"`, `"1.1.0"`, `"0.1.0"` or `"2.1"`; `"2"` and `"2.0"` are `"2.1"`.
        compression: False stores raw; True compresses with zstd level 3; an integer is the level.
            Components that zstd makes no smaller are stored raw.
        checksum: `"crc32c"`, or of 2.1 `"xxh3"`; `"sha256"`; or None. True is the first of those
            the version has.
        attributes: the file's own key-value pairs.
        durable: True flushes file and folder to disk before `finish` returns; "auto" does so when
            an existing file is replaced; False leaves it to the system.
        threads: how many compress and hash beside the writing; by default as many as there are
            cores, four at most, or what `ZTENSOR_NUM_THREADS` says.
        format: `"zt"` writes a zTensor file also where the path has another format's suffix.
        chunk_rows: of compressed tensors, how many rows (indices of the first axis) are decoded
            together, up to 16 MiB: more make smaller files, fewer make reading rows cheaper. By
            default as many as 64 KiB hold.
        metadata: another name of `attributes`, which `save_file` has; only one of them.
        alignment: of 2.1: what blobs begin at multiples of, a power of two from 4096 to 65536,
            which is the default. Less suits many small tensors.
        canonical: of 2.1: True writes the canonical form, in which the same tensors and attributes
            give the same bytes: raw, equal bytes once, xxh3. Objects are then written in the order
            of their names' bytes, and not streamed.

    Raises:
        ArgumentValueError: an argument has an unknown value, or the path another format's suffix.
        NotRepresentableError: the version cannot hold the attributes.
        SourceError: the target cannot be created.
    """

    _output: Output
    _small: SmallRows | None = None  # of a new file

    def __init__(
        self,
        path: Target,
        *,
        version: str = LATEST,
        compression: bool | int | str = False,
        checksum: str | bool | None = True,
        attributes: Mapping[str, object] | None = None,
        durable: Durable = "auto",
        threads: int | None = None,
        format: Literal["zt"] | None = None,
        chunk_rows: int | None = None,
        metadata: Mapping[str, object] | None = None,
        alignment: int | None = None,
        canonical: bool = False,
    ) -> None:
        if metadata is not None and attributes is not None:
            raise ArgumentValueError("metadata and attributes are the same; pass only one")
        self._output = create(
            path,
            version=version,
            compression=compression,
            checksum=checksum,
            attributes=attributes if metadata is None else metadata,
            durable=durable,
            threads=threads,
            format=format,
            chunk_rows=chunk_rows,
            alignment=alignment,
            canonical=canonical,
        )
        self._small = SmallRows(self._output)

    @classmethod
    def append(cls, path: Path, **options: Unpack[EditOptions]) -> Editor:
        """Return a writer that adds objects to a finished file; see `ztensor.edit.Editor`.

        Raises:
            FormatError: the file is damaged; the message says how to repair it.
            SourceError: it cannot be opened for writing, or another process is writing it.
        """
        return ztensor.Editor(path, **options)  # by the table of public names: it lies above

    # --- Objects ----------------------------------------------------------------------------

    def write(
        self,
        name: str,
        data: TensorLike,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write one object.

        The data is stored before this returns and may be changed or dropped then.

        Args:
            name: the object's name; any text, each once.
            data: a `Tensor`, an array (also non-contiguous, byte-swapped, 0-d or empty), or a value
                of torch, JAX or SciPy, dense or sparse, on any device.
            attributes: key-value pairs of the object; a tensor's own by default.
            compress: as the writer's `compression`, for this object; None takes the writer's.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            SourceError: the bytes could not be stored. The writer is then aborted.
        """
        if (
            self._small is None
            or type(data) is not np.ndarray
            or attributes
            or compress is not None
            or checksum is not None
            or chunk_rows is not None
            or not self._small.write(name, data)
        ):
            self._output.write(name, data, attributes, compress, checksum, chunk_rows)

    def write_numpy(
        self,
        name: str,
        data: npt.ArrayLike,
        *,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a dense object from an array; see `write`."""
        self.write(name, data, compress=compress, checksum=checksum, chunk_rows=chunk_rows)

    def write_torch(
        self,
        name: str,
        data: TorchTensor,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a torch tensor, dense or sparse, from any device; see `write`."""
        self.write(
            name,
            data,
            attributes=attributes,
            compress=compress,
            checksum=checksum,
            chunk_rows=chunk_rows,
        )

    def add(
        self,
        name: str,
        data: npt.ArrayLike,
        compress: bool | int | str | None = None,  # noqa: FBT001  # positional in the 1.2 API
        checksum: str | bool | None = None,  # noqa: FBT001
        *,
        chunk_rows: int | None = None,
    ) -> None:
        """Write a dense object from an array; see `write`."""
        self.write(name, data, compress=compress, checksum=checksum, chunk_rows=chunk_rows)

    def copy(
        self,
        name: str,
        reader: ObjectReader,
        from_name: str | None = None,
        *,
        compress: bool | int | str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Write an object of another file as it is stored there, checked but not decoded.

        Encoding, digest, attributes and unknown fields are kept; objects that shared their bytes
        share them again. Only what the version spells otherwise is decoded and written anew, piece
        by piece: big-endian data and bools of 0.1, indices that are not u64, what only another
        format knows to decode.

        Args:
            name: the object's name here.
            reader: an open reader of the other file.
            from_name: its name there, by default the same.
            compress: as for `write`, to have it encoded anew; None keeps how it is stored.
            progress: called with the bytes of each piece that was written.

        Raises:
            NotRepresentableError: the version cannot hold it; the message says what would work.
            UsageError: the name was written before, or the writer is finished.
            ObjectNotFoundError: the reader has no such object.
            DigestMismatchError: the stored bytes are damaged. The writer is then aborted.
            SourceError: bytes could not be read or stored. The writer is then aborted.
        """
        self._output.copy(name, reader.objects, from_name, compress=compress, progress=progress)

    def share(self, name: str, of: str) -> None:
        """Write an object that has the bytes of one written before; only its name is new.

        Raises:
            UsageError: the name was written before, or `of` was not, or the writer is finished.
        """
        self._output.share(name, of)

    @property
    def shared(self) -> dict[str, str]:
        """Return which names were written without bytes of their own, and whose they have."""
        return dict(self._output.shared)

    def stream(
        self,
        name: str,
        shape: Sequence[int],
        dtype: ElementType,
        *,
        attributes: Mapping[str, object] | None = None,
        compress: bool | int | str | None = None,
        checksum: str | bool | None = None,
        chunk_rows: int | None = None,
    ) -> ObjectSink:
        """Return a sink for one dense object that takes its elements in pieces.

        For tensors larger than memory: `with writer.stream("w", (10**6, 512), "float32") as sink:`
        and then `sink.write(rows)`, from the first row to the last. Nothing else can be written
        until it is closed.

        Args:
            name: the object's name.
            shape: its shape.
            dtype: element type: a long or short name, a logical type's name, a NumPy type or a
                `torch.dtype`.
            attributes: key-value pairs of the object.
            compress: as the writer's `compression`, for this object; None takes the writer's. An
                object of more than 4 MiB stays compressed where that saves nothing: only its end
                would tell.
            checksum: as the writer's `checksum`, for this object; False or "none" for no digest.
            chunk_rows: as the writer's, for this object; None takes the writer's.

        Raises:
            NotRepresentableError: the version cannot hold it.
            UsageError: the name was written before, or the writer is finished.
        """
        return self._output.start_stream(
            name,
            shape,
            dtype,
            attributes,
            compress=compress,
            checksum=checksum,
            chunk_rows=chunk_rows,
        )

    # --- The end ----------------------------------------------------------------------------

    def finish(self) -> int:
        """Write the manifest, put the file in place, and return its length in bytes.

        Raises:
            UsageError: a stream is still open.
            ClosedError: the writer was finished or aborted before.
            SourceError: the file could not be put in place; what was there before still is.
        """
        return self._output.finish()

    def abort(self) -> None:
        """Forget everything; no file appears, and an old one stays. May be called again."""
        self._output.abort()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        self._output.require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish, or abort where an exception passes through."""
        if kind is not None:
            self.abort()
        elif self._output.state == "open":
            try:
                self.finish()
            except BaseException:
                self.abort()
                raise

    def __repr__(self) -> str:
        """Return target, version and state."""
        output = self._output
        return (
            f"<ztensor.Writer {describe(output.sink.name)} version {output.emitter.version}, "
            f"{counted(len(output.objects), 'object')}, {output.state}>"
        )
