"""Training states of torch: types, and runs that go on bit for bit as if nothing had happened."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import sample
from tests.flipping import flip_object
from tests.unit.training.tree.alike import assert_alike
from ztensor.errors import NotRepresentableError, UnsupportedError

torch = pytest.importorskip("torch")

from ztensor.torch import load_tree, save_tree  # noqa: E402
from ztensor.training.tree.kinds import Leaf, Made  # noqa: E402


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_types_of_torch_come_back(tmp_path: Path) -> None:
    weight = torch.randn(4, 3)
    tree = {
        "bf16": torch.arange(4).to(torch.bfloat16),
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 2),
        "bool": torch.tensor([True, False]),
        "complex": torch.tensor([1 + 2j]),
        "grad": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(weight),
        "frozen": torch.nn.Parameter(torch.ones(1), requires_grad=False),
        "size": torch.Size([2, 3]),
        "dtype": torch.float8_e4m3fn,
        "device": torch.device("cuda", 1),
        "numpy": np.arange(3),
        "transposed": weight.T,
        "sparse": torch.eye(3).to_sparse().coalesce(),
        "csr": torch.eye(3).to_sparse_csr(),
        "state": torch.nn.BatchNorm1d(3).state_dict(),
    }
    save_tree(tree, tmp_path / "a.zt")
    assert_alike(load_tree(tmp_path / "a.zt"), tree)
    mapped = load_tree(tmp_path / "a.zt", copy=False)
    assert_alike(mapped, tree)
    assert mapped["state"]._metadata == tree["state"]._metadata


def test_a_generator_goes_on_with_the_numbers_that_come_next(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(3, generator=generator)
    save_tree({"data order": generator}, tmp_path / "a.zt")
    expected = torch.rand(5, generator=generator)
    for is_copied in (True, False):
        found = load_tree(tmp_path / "a.zt", copy=is_copied)["data order"]
        assert torch.equal(torch.rand(5, generator=found), expected)


def test_channels_last_stays(tmp_path: Path) -> None:
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    volume = torch.randn(1, 2, 3, 4, 5).to(memory_format=torch.channels_last_3d)
    save_tree([image, volume, torch.nn.Parameter(image)], tmp_path / "a.zt")
    found = load_tree(tmp_path / "a.zt")
    assert [value.stride() for value in found] == [image.stride(), volume.stride(), image.stride()]
    assert_alike(found[0], image)


def test_tied_weights_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(3, 3))
    save_tree({"a": weight, "b": weight, "c": weight.detach()}, tmp_path / "a.zt")
    with ztensor.open(tmp_path / "a.zt") as reader:
        assert len(reader) == 1
    found = load_tree(tmp_path / "a.zt")
    found["a"].data[0, 0] = 5
    assert found["b"][0, 0] == found["c"][0, 0] == 5


ORDERS = {
    "row-major": lambda: torch.rand(2, 3),
    "channels_last": lambda: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_3d": lambda: torch.rand(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
    "expanded": lambda: torch.rand(3).expand(2, 3),
    "empty": lambda: torch.zeros(0, 3),
    "sparse": lambda: torch.eye(3).to_sparse().coalesce(),
}
# Two names of one tensor, and whether they were one object.
PAIRS: dict[str, tuple[Callable[[Any], tuple[Any, Any]], bool]] = {
    "a tensor twice": (lambda one: (one, one), True),
    "a tensor with a gradient twice": (lambda one: (one.requires_grad_(),) * 2, True),
    "a parameter twice": (lambda one: (torch.nn.Parameter(one),) * 2, True),
    "a parameter and its data": (lambda one: (torch.nn.Parameter(one), one), False),
    "two parameters": (lambda one: (torch.nn.Parameter(one), torch.nn.Parameter(one)), False),
    "a tensor and a view": (lambda one: (one.requires_grad_(), one.detach()), False),
}


def restored(tree: Any, folder: Path) -> Any:
    with ztensor.CheckpointManager(folder / "steps") as manager:
        manager.save(1, tree)
        manager.wait()
        found = manager.restore()
    assert found is not None
    return found.tree


def loaded(tree: Any, folder: Path, **options: Any) -> Any:
    save_tree(tree, folder / "a.zt")
    return load_tree(folder / "a.zt", **options)


def of_2_1(tree: Any, folder: Path) -> Any:
    save_tree(tree, folder / "a.zt", version="2.1", compression=True)
    return load_tree(folder / "a.zt")


LOADERS: dict[str, Callable[[Any, Path], Any]] = {
    "load_tree": loaded,
    "load_tree of views": functools.partial(loaded, copy=False),
    "load_tree onto the CPU": functools.partial(loaded, device="cpu"),
    "load_tree of 2.1": of_2_1,
    "load_tree into a live one": lambda tree, folder: loaded(tree, folder, into=tree),
    "restore": restored,
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("loader", LOADERS)
def test_tied_tensors_are_tied_after_every_load(
    loader: str, order: str, pair: str, tmp_path: Path
) -> None:
    make, were_one = PAIRS[pair]
    one, other = make(ORDERS[order]())
    found = LOADERS[loader]([{"a": one}, {1: (other,)}], tmp_path)
    first, second = found[0]["a"], found[1][1][0]
    assert_alike(first, one)
    assert_alike(second, other)
    if were_one:
        assert first is second
    if one.layout is torch.strided:
        with torch.no_grad():
            first.add_(1)
        assert torch.equal(first, second)
        assert first.stride() == second.stride()


@pytest.mark.parametrize("order", ["", "channels_last"])
@pytest.mark.parametrize("device", [None, "cpu", "meta"])
@pytest.mark.parametrize("kind", ["torch.Tensor", "torch.nn.Parameter"])
def test_tensors_tied_on_another_device_are_tied_after_a_load(
    kind: str, device: str | None, order: str, tmp_path: Path
) -> None:
    # As a machine with a GPU writes it.
    weight = torch.rand(2, 3, 4, 5)
    leaf, words = Leaf(weight, None, "torch"), f"cuda {order}".strip()
    one, other = Made(kind, (leaf, words)), Made(kind, (leaf, f"{words} requires_grad"))
    save_tree([one, other, one], tmp_path / "a.zt")
    with ztensor.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, [one, other, one])
        manager.wait()
        restored = manager.restore(device=device)
    assert restored is not None
    for found in load_tree(tmp_path / "a.zt", device=device), restored.tree:
        assert found[0] is found[2]
        assert {tensor.device.type for tensor in found} == {device or "cpu"}
        assert found[0].untyped_storage()._cdata == found[1].untyped_storage()._cdata


@pytest.mark.parametrize("order", ["channels_last", "contiguous_format"])
def test_a_view_that_has_to_be_copied_is_checked(order: str, tmp_path: Path) -> None:
    path, value = tmp_path / "a.zt", torch.rand(2, 3, 4, 5)
    save_tree({"a": value.contiguous(memory_format=getattr(torch, order))}, path)
    flip_object(path, "a")
    with pytest.raises(ztensor.DigestMismatchError):
        load_tree(path)
    is_copied = order == "channels_last"
    with pytest.raises(ztensor.DigestMismatchError) if is_copied else contextlib.nullcontext():
        load_tree(path, copy=False)


def test_equal_tensors_that_are_not_shared_stay_apart(tmp_path: Path) -> None:
    save_tree({"a": torch.zeros(3), "b": torch.zeros(3)}, tmp_path / "a.zt")
    for how in (True, False):
        found = load_tree(tmp_path / "a.zt", copy=how)
        found["a"][0] = 1
        assert found["b"][0] == 0


def test_without_torch_tensors_are_arrays_and_types_are_records(tmp_path: Path) -> None:
    save_tree({"w": torch.ones(2), "p": torch.nn.Parameter(torch.ones(1)), "s": torch.Size([1])},
              tmp_path / "a.zt")  # fmt: skip
    found = ztensor.load_tree(tmp_path / "a.zt")
    assert_alike(found["w"], np.ones(2, np.float32))
    assert found["s"].class_name == "torch.Size"
    assert found["s"].of == (1,)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.empty(2, device="meta"), "meta device"),
        (torch.nn.UninitializedParameter, "lazy"),
        (lambda: torch.ones(2, dtype=torch.complex32), "complex64"),
        (lambda: torch.nn.Linear(1, 1), "no file can hold"),
        (lambda: torch.optim.SGD([torch.ones(1)], 0.1), "no file can hold"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_unsupported_values_are_refused(tmp_path: Path, make: Callable[[], Any], says: str) -> None:
    with pytest.raises(NotRepresentableError, match=rf"^tree\['x'\]\[0\]: .*{says}"):
        save_tree({"x": [make()]}, tmp_path / "a.zt")
    assert not list(tmp_path.iterdir())


def test_a_subclass_is_refused(tmp_path: Path) -> None:
    own = type("Own", (torch.Tensor,), {})
    with pytest.raises((NotRepresentableError, UnsupportedError), match="subclass"):
        save_tree([torch.ones(2).as_subclass(own)], tmp_path / "a.zt")


TYPES = ["torch.Tensor", "torch.Size", "torch.dtype", "torch.device", "torch.Generator"]


@pytest.mark.parametrize("name", TYPES)
def test_hostile_values_of_types_of_torch(tmp_path: Path, name: str) -> None:
    from ztensor.training.torch_tree import tree_makers

    maker = tree_makers()[name]
    for value in (
        None,
        1,
        "x",
        (1.5,),
        ("a", "b"),
        (np.zeros(1), "x"),
        [1],
        {"a": 1},
        ("cpu", torch.zeros(3, dtype=torch.uint8)),
        ("cpu", torch.zeros(5056)),
    ):
        with pytest.raises(ztensor.ZTensorError):
            maker(value)


@pytest.mark.parametrize("kind", ["torch.Tensor", "torch.nn.Parameter"])
@pytest.mark.parametrize("words", ["requires_grad", "channels_last", "channels_last_3d"])
def test_a_tensor_that_cannot_be_made_as_described_is_damage(
    words: str, kind: str, tmp_path: Path
) -> None:
    leaf = Leaf(torch.ones(2, dtype=torch.int8), None, "torch")  # no gradient, and no four axes
    save_tree({"x": Made(kind, (leaf, words))}, tmp_path / "a.zt")
    with pytest.raises(ztensor.FormatError):
        load_tree(tmp_path / "a.zt")


# --- The matrix of runs that are resumed ------------------------------------------------------

OPTIMIZERS: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [{}, {"foreach": True}],
    "Adafactor": [{}],
    "Adagrad": [{}, {"initial_accumulator_value": 0.1}],
    "Adam": [{}, {"amsgrad": True}, {"foreach": True}, {"fused": True}, {"lr": torch.tensor(1e-2)}],
    "AdamW": [{}, {"amsgrad": True}, {"capturable": False, "foreach": True}],
    "Adamax": [{}],
    "ASGD": [{}],
    "LBFGS": [{"lr": 0.1, "max_iter": 3}],
    "Muon": [{}],
    "NAdam": [{}, {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "RAdam": [{}],
    "RMSprop": [{}, {"centered": True, "momentum": 0.9}],
    "Rprop": [{}],
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "fused": True},
    ],
}
_SCHEDULES = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda _: None,
    **{
        name: functools.partial(getattr(_SCHEDULES, name), **options)
        for name, options in (
            ("StepLR", {"step_size": 2}),
            ("MultiStepLR", {"milestones": [2, 2, 4]}),
            ("ReduceLROnPlateau", {"patience": 0}),
            ("CosineAnnealingWarmRestarts", {"T_0": 2}),
            ("OneCycleLR", {"max_lr": 0.1, "total_steps": 20, "cycle_momentum": False}),
            ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2,
                          "cycle_momentum": False}),
            ("LambdaLR", {"lr_lambda": lambda step: 0.9**step}),
        )
    },
    "SequentialLR": lambda o: _SCHEDULES.SequentialLR(o, two_schedules(o), [2]),
    "ChainedScheduler": lambda o: _SCHEDULES.ChainedScheduler(two_schedules(o)),
}  # fmt: skip


def two_schedules(optimizer: Any) -> list[Any]:
    return [_SCHEDULES.ConstantLR(optimizer), _SCHEDULES.ExponentialLR(optimizer, 0.9)]


EVERY = [
    (name, at, schedule)
    for name, every in OPTIMIZERS.items()
    for at in range(len(every))
    for schedule in SCHEDULERS
]
# A scheduler for each optimizer with its options, and one of those for each scheduler.
TAKEN = {*sample(EVERY, 1, lambda case: case[:2]), *sample(EVERY, 1, lambda case: case[2])}
CASES = [pytest.param(*case, id="{}-{}-{}".format(*case)) for case in EVERY if case in TAKEN]


def model(kind: str) -> Any:
    layers = [torch.nn.Linear(4, 4, bias=kind != "Muon")]
    if kind != "Muon":
        layers += [torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*layers)


class Run:
    """A small training run with all the state there can be."""

    def __init__(self, kind: str, options: dict[str, Any], schedule: str) -> None:
        torch.manual_seed(3)
        random.seed(3)
        self.draw = np.random.default_rng(3)
        self.model = model(kind)
        options = copy.deepcopy(options)
        self.optimizer = getattr(torch.optim, kind)(self.model.parameters(), **options)
        self.scheduler = SCHEDULERS[schedule](self.optimizer)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            batch = torch.randn(6, 4) + random.random()
            batch += float(self.draw.normal())

            def loss(batch: Any = batch) -> Any:
                self.optimizer.zero_grad()
                value = (self.model(batch) ** 2).mean()
                value.backward()
                return value

            value = self.optimizer.step(loss)
            if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(value)
            elif self.scheduler is not None:
                self.scheduler.step()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "random": (random.getstate(), self.draw.bit_generator.state, torch.get_rng_state()),
        }

    def resume(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        python, numpy, own = state["random"]
        random.setstate(python)
        self.draw.bit_generator.state = numpy
        torch.set_rng_state(own)


@pytest.mark.parametrize(("kind", "at", "schedule"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_run_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, kind: str, at: int, schedule: str
) -> None:
    if not hasattr(torch.optim, kind):
        pytest.skip("an older torch")
    options = OPTIMIZERS[kind][at]
    unbroken = Run(kind, options, schedule)
    unbroken.train(3)
    save_tree(unbroken.state(), tmp_path / "state.zt")
    unbroken.train(3)
    for how in (True, False):
        resumed = Run(kind, options, schedule)
        resumed.resume(load_tree(tmp_path / "state.zt", copy=how))
        resumed.train(3)
        assert_alike(resumed.state(), unbroken.state())


def test_lazy_views_of_torch_are_not_aliases(tmp_path: Path) -> None:
    value = torch.tensor([1 + 2j, 3 - 1j])
    tree = {"a": value, "conj": value.conj(), "imag": value.conj().imag, "again": value}
    save_tree(tree, tmp_path / "a.zt")
    found = load_tree(tmp_path / "a.zt")
    assert found["again"] is found["a"]
    for name, tensor in tree.items():
        assert torch.equal(found[name], tensor), name
