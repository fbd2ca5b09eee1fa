"""`StorageReader`, for `torch.distributed.checkpoint.load`."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import os
import socket
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType

from ztensor.distributed.torch.opened import Opened, opened_at
from ztensor.distributed.torch.place import DCP_VERSION, AtPlace
from ztensor.distributed.torch.planner import asking, elements, require_shape
from ztensor.errors import (
    ObjectNotFoundError,
    Reason,
    SourceError,
    UsageError,
    ZTensorError,
)
from ztensor.ext import result_dtype, run_jobs, thread_count
from ztensor.limits import Limits
from ztensor.torch.values import (
    SPARSE,
    TORCH_ERRORS,
    array_to_torch,
    first_line,
    to_torch,
    torch_dtype,
    torch_shape,
    writable_array,
)
from ztensor.typing import Path, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner


class StorageReader(AtPlace, dcp.StorageReader):  # type: ignore[misc]  # torch is untyped here
    """Read a checkpoint that `StorageWriter` wrote, for `torch.distributed.checkpoint.load`.

        dcp.load(state, storage_reader=ztensor.torch.StorageReader("step-100"))

    Any number of processes, any placement: each reads the boxes that it needs, straight into its
    tensors. A tensor of another element type or on another device is filled by `copy_`. Plain
    values are decoded from the file without unpickling; torch's planner then gets them as a pickle
    that this process makes in memory.

    A damaged, cut or missing file is an error in every process, as is a checkpoint that is
    replaced while processes open it.

    Args:
        path: the folder, or a URL of a prefix on an object store.
        verify: None checks the digests of chunks that are read whole; True also of chunks that are
            needed in part, which are then read whole; False checks none.
        threads: number of reading threads in each process; by default the processes on a machine
            share its cores.
        types: see `ztensor.typing.TreeOptions`; classes among the values.
        storage: see `ztensor.typing.OpenOptions`.
        limits: likewise.

    Attributes:
        load_id: a new id for each load, as torch's own reader has.

    Raises:
        ArgumentTypeError: `path` is not a path.
    """

    def __init__(
        self,
        path: Path,
        *,
        verify: bool | None = None,
        threads: int | None = None,
        types: Iterable[type] = (),
        storage: Storage | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__()
        self._take_place(path)
        self._options: dict[str, Any] = {"verify": verify, "storage": storage, "limits": limits}
        thread_count(threads)  # raises if it is not a number
        self._threads = threads
        self._types = tuple(types)
        self.load_id = str(uuid.uuid4())
        self._opened: Opened | None = None
        self._failure: ZTensorError | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state for another process, which opens the files itself."""
        return {**vars(self), "_opened": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Read from another folder from now on; None keeps the folder."""
        if checkpoint_id is not None:
            self._take_place(checkpoint_id)
        self.load_id = str(uuid.uuid4())
        self._close()

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """Return the contents of the checkpoint; called by torch, in every process.

        Entries are made on access. If the root cannot be read, the first access raises: torch takes
        an error here as a sign of another root, and would raise one of its own.

        Returns:
            A `torch.distributed.checkpoint.metadata.Metadata`.
        """
        del args, kwargs
        self._close()
        paths = save_id = None
        try:
            opened = self._checkpoint()
            paths, save_id = opened.paths, opened.save_id
        except ZTensorError as error:
            self._failure = error
        metadata = Metadata(
            state_dict_metadata=_Entries(self),
            planner_data=paths,
            storage_meta=StorageMeta(self._name, save_id, self.load_id),
        )
        metadata.version = DCP_VERSION
        return metadata

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,  # noqa: FBT001  # torch's
        *args: object,
        **kwargs: object,
    ) -> None:
        """Open the checkpoint if it is not open; called by torch, in every process.

        Raises:
            ZTensorError: it cannot be opened.
        """
        del metadata, is_coordinator, args, kwargs
        self._checkpoint()

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Add the checkpoint's identity to the plan; called by torch, in every process."""
        data = _PlanData(self._checkpoint().identity, socket.gethostname())
        return dataclasses.replace(plan, storage_data=data)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Check that all processes opened the same checkpoint; called by torch, in the coordinator.

        Returns:
            The plans, each with the number of processes on its machine.

        Raises:
            SourceError: the checkpoint was replaced while they opened it.
        """
        nothing = _PlanData(None, "")  # for plans that a planner replaced
        data = (plan.storage_data for plan in plans)
        opened = [one if isinstance(one, _PlanData) else nothing for one in data]
        if len({other.identity for other in opened}) > 1:
            raise SourceError(
                "the checkpoint was replaced while processes opened it; load it again",
                file=self._name,
                reason=Reason.SOURCE_CHANGED,
            )
        beside = collections.Counter(other.host for other in opened)
        return [
            dataclasses.replace(plan, storage_data=beside[other.host])
            for plan, other in zip(plans, opened, strict=True)
        ]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        """Read the items of a plan; called by torch, in every process.

        Returns:
            A `torch.futures.Future` that is done.

        Raises:
            FormatError: a file is damaged, cut or missing; the error names file and tensor.
            UsageError: a tensor of the planner has another shape than it planned, or cannot be
                filled.
        """
        opened = self._checkpoint()
        jobs: list[Callable[[], None]] = []
        targets = []
        try:
            for item in plan.items:
                name = item.storage_index.fqn
                if item.type == LoadItemType.BYTE_IO:
                    data = io.BytesIO()
                    torch.save(opened.values[name], data)
                    data.seek(0)
                    with asking(planner, name):
                        planner.load_bytes(item, data)
                    continue
                with asking(planner, name):
                    target = planner.resolve_tensor(item)
                if (
                    target.layout is torch.strided
                ):  # a detached sparse tensor would be filled instead of it
                    target = target.detach()
                targets.append((item, target))
                jobs.append(functools.partial(_fill, opened, item, target))
            run_jobs(jobs, thread_count(self._threads, processes=plan.storage_data or 1))
            for item, target in targets:
                with asking(planner, item.storage_index.fqn):
                    planner.commit_tensor(item, target)
        finally:
            self._close()
        done: Any = torch.futures.Future()
        done.set_result(None)
        return done

    def _checkpoint(self) -> Opened:
        """Return the open checkpoint.

        Raises:
            ZTensorError: it cannot be opened.
        """
        if self._failure is not None:
            raise self._failure
        if self._opened is None:
            self._opened = opened_at(self._path, self._types, **self._options)
        return self._opened

    def _close(self) -> None:
        opened, self._opened, self._failure = self._opened, None, None
        if opened is not None:
            opened.close()


class _PlanData(NamedTuple):
    """The data in the plan of a process for the coordinator.

    Attributes:
        identity: identity of the checkpoint that it opened.
        host: name of its machine.
    """

    identity: object
    host: str


class _Entries(Mapping[str, Any]):
    """The entries of a checkpoint for torch's planners; each is made on access."""

    def __init__(self, reader: StorageReader) -> None:
        self._reader = reader

    def __getitem__(self, name: str) -> Any:
        opened = self._reader._checkpoint()
        entry = opened.entry(name)
        if entry is None:
            if name in opened.values:
                return BytesStorageMetadata()
            raise KeyError(name)
        try:
            dtype = result_dtype(entry.kind.component)
            kind, size = torch_dtype(dtype), torch.Size(torch_shape(dtype, entry.shape))
        except ZTensorError as error:
            error.locate(file=opened.name, object_name=name)
            raise
        whole = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
        return TensorStorageMetadata(TensorProperties(dtype=kind), size, [whole])

    def __contains__(self, name: object) -> bool:
        opened = self._reader._checkpoint()
        return isinstance(name, str) and (opened.entry(name) is not None or name in opened.values)

    def __iter__(self) -> Iterator[str]:
        opened = self._reader._checkpoint()
        yield from opened.names
        yield from opened.values

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _fill(opened: Opened, item: Any, target: Any) -> None:
    """Fill a tensor of the planner with a box of a tensor of the checkpoint.

    Raises:
        ZTensorError: the files are damaged, or the tensor cannot be filled.
    """
    name = item.storage_index.fqn
    entry = opened.entry(name)
    if entry is None:
        raise ObjectNotFoundError.named(name, opened.names, opened.name)
    require_shape(name, target, item.lengths)
    if entry.kind.format in SPARSE:
        with _copying(name):
            _copy_sparse(to_torch(opened.tensor(name)), target)
        return
    dtype = result_dtype(entry.kind.component)
    offsets, sizes = (
        elements(one, torch_dtype(dtype)) for one in (item.storage_offsets, item.lengths)
    )
    array = writable_array(target, dtype)
    if array is not None:
        opened.read_box(name, offsets, sizes, array)
        return
    array = np.empty(sizes, dtype)
    opened.read_box(name, offsets, sizes, array)
    with _copying(name):
        target.copy_(array_to_torch(array))


def _copy_sparse(source: Any, target: Any) -> None:
    if target.layout is torch.strided:
        source = source.to_dense()
    elif target.layout is torch.sparse_csr:  # whose number of entries is fixed
        target.resize_as_sparse_(source)
    target.copy_(source)


@contextlib.contextmanager
def _copying(name: str) -> Iterator[None]:
    try:
        with torch.no_grad():
            yield
    except TORCH_ERRORS as error:
        raise UsageError(
            f"torch cannot copy the tensor into the tensor of the state: {first_line(error)}",
            object_name=name,
        ) from error
