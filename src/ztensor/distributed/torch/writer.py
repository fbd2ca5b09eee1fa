"""`StorageWriter`, for `torch.distributed.checkpoint.save`."""

from __future__ import annotations

import io
import os
import secrets
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from ztensor.distributed import PartRecord, PartWriter
from ztensor.distributed.committing import commit_as
from ztensor.distributed.part import require_save_id
from ztensor.distributed.place import Place
from ztensor.distributed.root import BOXES, PATHS, SAVE_ID, encode_values
from ztensor.distributed.rows import own_name
from ztensor.distributed.saves import Save
from ztensor.distributed.torch.agreeing import SaveApart, save_of_plan, with_save, with_token
from ztensor.distributed.torch.opened import folder_of
from ztensor.distributed.torch.place import DCP_VERSION, AtPlace
from ztensor.distributed.torch.planner import asking, elements, require_shape
from ztensor.errors import (
    ArgumentValueError,
    NotRepresentableError,
    UsageError,
    ZTensorError,
)
from ztensor.options import PartOptions, require_options
from ztensor.torch.tying import identity
from ztensor.torch.values import first_line, from_torch
from ztensor.typing import Path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

    Boxes = dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]]

# Turns an object into a pickle in torch's own planners. A planner that does not override it can be
# asked for the object itself.
_PICKLING: Callable[..., Any] = dcp.DefaultSavePlanner.transform_object


class _Written(NamedTuple):
    """The result of one process for the coordinator.

    Attributes:
        record: record of its files; None if it wrote none.
        values: plain values by name.
        boxes: for a process that saves without collectives: tensor, whole shape and offsets of each
            object by its name; else None.
    """

    record: PartRecord | None
    values: dict[str, Any]
    boxes: Boxes | None


class StorageWriter(AtPlace, dcp.StorageWriter):  # type: ignore[misc]  # torch is untyped here
    """Write a checkpoint of any number of processes, for `torch.distributed.checkpoint.save`.

        dcp.save(state, storage_writer=ztensor.torch.StorageWriter("step-100"))

    The folder gets one `.zt` file for each process and the root `checkpoint.zt`, written last.
    The root replaces the old checkpoint in one step, also if a process or the machine dies; files
    that only the old checkpoint needed are then removed. Nothing is pickled.

    Kept: dense tensors of every type that zTensor has, `DTensor` and `ShardedTensor` (each process
    its own shards), sparse COO and CSR tensors, and plain values, as `ztensor.save_tree` keeps
    them. Tensors over the same memory that one process writes are stored once.

    Works with `dcp.save` and `dcp.async_save` (in a thread and in a process), with the planners of
    torch and those derived from them, with cached plans, and with `no_dist`. With
    `use_collectives=False` no process could write the root: each saves into a subfolder of its own,
    such as `00003`, which must not have a checkpoint yet, since the processes cannot replace one
    together.

    Args:
        path: the folder, or a URL of a prefix on an object store. Made where it is missing.
        overwrite: False refuses a folder that has a checkpoint, before anything is written.
        values: more plain values for the root by name, such as those that
            `ztensor.CheckpointManager.save_divided` passes. The coordinator writes its own.
        save_id: a text or number that all processes of a save pass, and no other save into the
            folder, such as the step with the number of the attempt. By default the processes agree
            on one; with `use_collectives=False` one that tries again by itself needs it.
        options: see `ztensor.typing.PartOptions`.

    Attributes:
        save_id: that one, or a new id for each save; a reader has the one of the coordinator
            in `read_metadata().storage_meta`.

    Raises:
        ArgumentTypeError: `path` is not a path.
    """

    def __init__(
        self,
        path: Path,
        *,
        overwrite: bool = True,
        values: Mapping[str, object] | None = None,
        save_id: str | int | None = None,
        **options: Unpack[PartOptions],
    ) -> None:
        require_options("StorageWriter", options, PartOptions)
        super().__init__()
        self._save_id = None if save_id is None else require_save_id(save_id)
        self._take_place(path)
        self._options = options
        self._durable = options.get("durable", "auto")
        self._storage = options.get("storage")
        self._values = dict(values or {})
        self._overwrite = overwrite
        self.save_id = self._save_id or str(uuid.uuid4())
        self._rank = 0
        self._is_alone = False
        self._part: PartWriter | None = None
        self._token = ""
        self._apart: SaveApart | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state for another process, without the files that this one writes."""
        return {**vars(self), "_part": None, "_apart": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Write into another folder from now on; None keeps the folder."""
        if checkpoint_id is not None:
            self._take_place(checkpoint_id)
        self.save_id = self._save_id or str(uuid.uuid4())
        self._part = None

    def storage_meta(self) -> StorageMeta:
        """Return id and path of the checkpoint for planners."""
        return StorageMeta(checkpoint_id=self._name, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:  # noqa: FBT001  # torch's
        """Learn which process this is; called by torch, in every process."""
        del is_coordinator, args
        rank = kwargs.get("rank")
        self._rank = rank if isinstance(rank, int) else 0
        self._is_alone = not kwargs.get("use_collectives", True)
        self._token = secrets.token_hex(16)
        self._apart = None
        if self._is_alone:
            self._apart = SaveApart(self._name, self._rank, self._save_id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan with a token of this save, since planners may reuse an earlier plan."""
        return with_token(plan, self._token)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Refuse a folder that must not be overwritten; called by torch, in the coordinator.

        Raises:
            UsageError: there is a checkpoint, and `overwrite` is False, or the processes save
                without collectives.
        """
        for home in (self._path, self._home):
            if (self._is_alone or not self._overwrite) and Place(home, self._storage).has_root():
                error = UsageError("Checkpoint already exists", file=self._name)  # torch's words
                error.in_python = None if self._is_alone else "overwrite=True replaces it"
                raise error
        return plans if self._is_alone else with_save(plans, self._save_id)

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> torch.futures.Future[list[WriteResult]]:
        """Write the items of a plan; called by torch, in every process.

        Returns:
            A `torch.futures.Future` of a list of one `WriteResult`, which is done.

        Raises:
            NotRepresentableError: a value cannot be stored; the error names it. No file is left.
            SourceError: a file could not be written. No file is left.
        """
        values: dict[str, Any] = {}
        tensors = []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                values[item.index.fqn] = _plain(item, planner)
            elif 0 not in item.tensor_data.chunk.sizes or 0 in item.tensor_data.size:
                tensors.append(item)
        boxes: Boxes | None = {} if self._is_alone else None
        record, size = None, 0
        Place(self._home, self._storage).make()
        save = save_of_plan(plan, self._token) or Save(self._save_id)
        if self._apart is not None:
            save = Save(self._apart.save.id)  # each has a checkpoint of its own
        if tensors or save.processes:
            part = PartWriter(
                self._home,
                process=self._rank,
                save_id=save.id,
                processes=save.processes,
                **self._options,
            )
            with part:
                alike = {} if self._is_alone else _alike(tensors, planner)
                for item in tensors:
                    size += _write(part, item, planner, alike.get(item.index), boxes)
                record = part.finish()
            self._part = part  # while it lives, clean-ups leave its files
        index = MetadataIndex(f"process {self._rank}")
        done: Any = torch.futures.Future()
        done.set_result([WriteResult(index, size, _Written(record, values, boxes))])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the root after all parts; called by torch, in the coordinator.

        Raises:
            SourceError: it could not be written. The old checkpoint is untouched.
        """
        written = [result.storage_data for some in results for result in some]
        values: dict[str, Any] = {}
        for one in written:
            values.update(one.values)
        for name, value in self._values.items():
            if name in values:
                raise ArgumentValueError("the state has a value of this name", object_name=name)
            values[name] = value
        values[SAVE_ID] = self.save_id
        if metadata.planner_data is not None:
            values[PATHS] = metadata.planner_data
        if self._is_alone:
            values[BOXES] = {key: box for one in written for key, box in (one.boxes or {}).items()}
        records = [one.record for one in written if one.record is not None]
        save = None if self._apart is None else self._apart.save
        if save is None and len({(one.save_id, one.processes) for one in records}) > 1:
            # Processes with a reused plan do not know the id of this save.
            records = [PartRecord(one.process, one.table) for one in records]
        commit_as(
            self._home,
            records,
            values,
            save,
            writer="torch",
            overwrite=self._overwrite and save is None,
            durable=self._durable,
            storage=self._storage,
        )
        self._part = None
        metadata.storage_meta = self.storage_meta()
        metadata.version = DCP_VERSION

    @property
    def _home(self) -> Any:
        """Return the folder of the root, a subfolder of this process without collectives."""
        if not self._is_alone:
            return self._path
        return folder_of(self._path, self._storage, self._rank)


def _plain(item: Any, planner: Any) -> Any:
    """Return the plain value of an item.

    Raises:
        NotRepresentableError: it is not a plain value.
    """
    name = item.index.fqn
    with asking(planner, name):
        if getattr(type(planner), "transform_object", None) is _PICKLING:
            value = planner.lookup_object(item.index)
        else:
            data = planner.resolve_data(item)
            data.seek(0)
            try:
                with torch.serialization.safe_globals([io.BytesIO]):
                    value = torch.load(data, weights_only=True)
            except Exception as error:
                raise NotRepresentableError(
                    "the planner returns a pickle of something else than a plain value",
                    object_name=name,
                    found=first_line(error),
                ) from error
    try:
        encode_values({name: value})
    except ZTensorError as error:
        error.locate(object_name=name)
        raise
    return value


class _Alike(NamedTuple):
    """A tensor that is tied to another one, which is written before it.

    Attributes:
        identity: identity of both; see `ztensor.torch.tying.identity`.
        of: name of the other tensor.
        at: offsets of its box.
    """

    identity: object
    of: str
    at: tuple[int, ...]


def _alike(items: list[Any], planner: Any) -> dict[Any, _Alike]:
    """Return the items of tied tensors by index.

    Tensors are compared while all are alive, so that no memory is reused meanwhile. Planners that
    make tensors only on demand are not asked here.
    """
    alike: dict[Any, _Alike] = {}
    if not hasattr(planner, "lookup_object"):
        return alike
    first: dict[object, _Alike] = {}
    held = []
    for item in items:
        with asking(planner, item.index.fqn):
            tensor = planner.lookup_object(item.index)
        held.append(tensor)
        one = identity(tensor)
        if one in first:
            alike[item.index] = first[one]
        else:
            at = elements(item.tensor_data.chunk.offsets, tensor.dtype)
            first[one] = _Alike(one, item.index.fqn, at)
    return alike


def _write(
    part: PartWriter, item: Any, planner: Any, alike: _Alike | None, boxes: Boxes | None
) -> int:
    """Write the tensor or box of an item; return its number of bytes.

    With `boxes`, a box is written as a tensor of its own and noted there.

    Raises:
        NotRepresentableError: zTensor does not support its element type or layout.
        UsageError: the planner returns a tensor of another shape than it planned.
    """
    name, data = item.index.fqn, item.tensor_data
    with asking(planner, name):
        tensor = planner.resolve_data(item)
    require_shape(name, tensor, data.chunk.sizes)
    try:
        box: dict[str, Any] = {}
        if tuple(data.size) != tuple(data.chunk.sizes):
            box = {
                "shape": elements(data.size, tensor.dtype),
                "offsets": elements(data.chunk.offsets, tensor.dtype),
            }
        if (
            alike is not None
            and identity(tensor) == alike.identity
            and part.share(name, alike.of, at=alike.at, **box)
        ):
            return 0
        stored = from_torch(tensor)
        if boxes is not None:
            own, whole = name, tuple(stored.shape)
            while own in boxes:
                own = own_name(name, len(boxes))
            boxes[own] = name, box.get("shape", whole), box.get("offsets", (0,) * len(whole))
            name, box = own, {}
        part.add(name, stored, **box)
    except ZTensorError as error:
        error.locate(object_name=item.index.fqn)
        raise
    return stored.nbytes
