"""Whole models: tied weights, names that differ, and the text torch gives for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, NotRepresentableError, UsageError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)


class Language(torch.nn.Module):  # type: ignore[misc]
    """An embedding that shares its weight with the head, a norm with buffers, a bias."""

    def __init__(self, seed: int = 0, *, is_tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(8, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 8)
        if is_tied:
            self.head.weight = self.embed.weight


def state(model: Any) -> dict[str, Any]:
    return {name: value.tolist() for name, value in model.state_dict().items()}


def test_a_model_comes_back(tmp_path: Path) -> None:
    model, other = Language(1), Language(2)
    assert ztorch.save_model(model, tmp_path / "m.zt", {"step": 3}) == {
        "head.weight": "embed.weight"
    }
    assert ztorch.load_model(other, tmp_path / "m.zt") == ([], [])
    assert state(other) == state(model)
    assert other.head.weight is other.embed.weight


def test_all_names_of_tied_weights_are_in_the_file(tmp_path: Path) -> None:
    ztorch.save_model(Language(1), tmp_path / "m.zt")
    untied = Language(2, is_tied=False)
    assert ztorch.load_model(untied, tmp_path / "m.zt") == ([], [])
    assert untied.head.weight.tolist() == untied.embed.weight.tolist()


def test_one_name_of_tied_weights_is_enough(tmp_path: Path) -> None:
    """Other tools drop all names but one."""
    model, other = Language(1), Language(2)
    saved = model.state_dict()
    del saved["embed.weight"]
    ztorch.save_file(saved, tmp_path / "m.zt")
    assert ztorch.load_model(other, tmp_path / "m.zt") == ([], [])
    assert state(other) == state(model)


class Graph(torch.nn.Module):  # type: ignore[misc]
    """A layer with a sparse weight over a sparse graph, and tied dense weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        weight = torch.rand(6, 6)
        weight[weight < 0.6] = 0
        self.weight = torch.nn.Parameter(weight.to_sparse_csr())
        self.register_buffer("edges", weight.t().sign().to_sparse_coo())
        self.embed = torch.nn.Embedding(6, 4)
        self.head = torch.nn.Linear(4, 6)
        self.head.weight = self.embed.weight

    def forward(self, nodes: Any) -> Any:
        return self.weight @ (self.edges @ self.head(self.embed(nodes)))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("size", ["150B", "5GB"], ids=["shards", "one file"])
def test_a_sparse_model_comes_back(tmp_path: Path, size: str) -> None:
    model, other = Graph(1), Graph(2)
    assert ztorch.save_pretrained(model, tmp_path, max_shard_size=size) == {
        "head.weight": "embed.weight"
    }
    assert (tmp_path / "model.zt").exists() is (size == "5GB")
    with ztensor.open(tmp_path) as reader:
        assert reader.metadata("weight").format == "sparse_csr"
        assert reader.metadata("edges").format == "sparse_coo"
    # torch copies between CSR tensors only where both have as many entries
    assert ztorch.load_pretrained(other, tmp_path, assign=True) == ([], [])
    nodes = torch.arange(6)
    assert (other.weight.layout, other.edges.layout) == (torch.sparse_csr, torch.sparse_coo)
    assert torch.equal(other(nodes), model(nodes))
    assert other.head.weight is other.embed.weight


def changed(model: Any, **new: Any) -> dict[str, Any]:
    result = {**model.state_dict(), **new}
    return {name: value for name, value in result.items() if value is not None}


DIFFERENT = {
    "missing": (changed(Language(), **{"head.bias": None}), ["head.bias"], []),
    "unexpected": (changed(Language(), extra=torch.ones(1)), [], ["extra"]),
    "both": (
        changed(Language(), **{"head.bias": None, "norm.bias": None, "extra": torch.ones(1)}),
        ["norm.bias", "head.bias"],
        ["extra"],
    ),
    "nothing there": (  # what older releases of torch did not save is never missing
        {},
        [name for name in Language().state_dict() if "num_batches" not in name],
        [],
    ),
}


@pytest.mark.parametrize(("saved", "missing", "unexpected"), DIFFERENT.values(), ids=DIFFERENT)
def test_names_that_differ(
    tmp_path: Path, saved: Any, missing: list[str], unexpected: list[str]
) -> None:
    ztorch.save_file(saved, tmp_path / "m.zt")
    assert ztorch.load_model(Language(), tmp_path / "m.zt", strict=False) == (missing, unexpected)
    with pytest.raises(RuntimeError) as caught:
        ztorch.load_model(Language(), tmp_path / "m.zt")
    with pytest.raises(RuntimeError) as theirs:
        Language().load_state_dict(dict(saved))
    assert isinstance(caught.value, UsageError)
    # torch lists unexpected names first, and we say which file it was.
    assert sorted(caught.value.message.split("\n\t")) == sorted(str(theirs.value).split("\n\t"))
    assert str(tmp_path / "m.zt") in str(caught.value)


@pytest.mark.parametrize("strict", [True, False])
def test_shapes_that_differ_are_never_accepted(tmp_path: Path, strict: bool) -> None:
    ztorch.save_file(changed(Language(), **{"head.bias": torch.ones(9)}), tmp_path / "m.zt")
    with pytest.raises(UsageError, match=r"size mismatch for head\.bias"):
        ztorch.load_model(Language(), tmp_path / "m.zt", strict=strict)


def test_a_quantized_weight_is_no_parameter(tmp_path: Path) -> None:
    from ztensor import Tensor

    quantized = Tensor.quantize(np.ones((8, 4), np.float32), group_size=8)
    ztorch.save_file(changed(Language(), **{"head.weight": quantized}), tmp_path / "m.zt")
    with pytest.raises(UsageError, match=r"head.weight.*ztensor"):
        ztorch.load_model(Language(), tmp_path / "m.zt")


def test_a_model_on_the_meta_device_takes_what_was_loaded(tmp_path: Path) -> None:
    model = Language(1)
    ztorch.save_model(model, tmp_path / "m.zt")
    with torch.device("meta"):
        other = Language()
    assert ztorch.load_model(other, tmp_path / "m.zt", assign=True) == ([], [])
    assert state(other) == state(model)
    assert other.head.bias.requires_grad
    assert other.head.weight is other.embed.weight


class Rotary(torch.nn.Module):  # type: ignore[misc]
    """Two buffers: one that is saved, and one that is not, for it can be computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(3.0))
        self.register_buffer("frequencies", torch.arange(4.0), persistent=False)


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Two rotaries; the second may share its persistent buffer with the first."""

    def __init__(self, *, shares: bool = False) -> None:
        super().__init__()
        self.first, self.second = Rotary(), Rotary()
        self.out = torch.nn.Linear(2, 2)
        if shares:
            self.second.scale = self.first.scale


def on_meta(**options: Any) -> Any:
    with torch.device("meta"):
        made = Attention(**options)
    if options:
        made.second.scale = made.first.scale
    return made


def left_on_meta(model: Any) -> list[str]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, tensor in named if tensor.is_meta]


@pytest.fixture(params=["m.zt", "m.safetensors", "shards", "folder of safetensors"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    torch.manual_seed(0)
    model, kind = Attention(), request.param
    if kind == "shards":
        ztorch.save_file(model.state_dict(), tmp_path / "model.zt", max_shard_size=20)
        return tmp_path
    if kind == "folder of safetensors":
        ztorch.save_model(model, tmp_path / "model.safetensors")
        return tmp_path
    ztorch.save_model(model, tmp_path / kind)
    return tmp_path / kind


BUFFERS = ["first.frequencies", "second.frequencies"]


def test_tensors_left_on_the_meta_device_are_named(saved: Any) -> None:
    model = on_meta()
    with pytest.raises(
        UsageError, match=r"Still on the meta device.*second\.frequencies"
    ) as caught:
        ztorch.load_model(model, saved, assign=True)
    assert "strict=False" in str(caught.value.hint)
    model = on_meta()
    assert ztorch.load_model(model, saved, strict=False, assign=True) == (BUFFERS, [])
    assert left_on_meta(model) == BUFFERS
    assert model.first.scale.tolist() == [0, 1, 2]


def test_missing_names_on_the_meta_device_are_named_once(tmp_path: Path) -> None:
    ztorch.save_file({"out.weight": torch.ones(2, 2)}, tmp_path / "m.zt")
    model = on_meta()
    missing, unexpected = ztorch.load_model(model, tmp_path / "m.zt", strict=False, assign=True)
    assert sorted(missing) == sorted([*BUFFERS, "first.scale", "out.bias", "second.scale"])
    assert sorted(left_on_meta(model)) == sorted(missing)
    assert unexpected == []


@pytest.mark.parametrize("strict", [True, False])
def test_copying_onto_the_meta_device_is_refused(saved: Any, strict: bool) -> None:
    """torch warns, and drops all that was loaded."""
    with pytest.raises(UsageError, match=r"On the meta device.*first\.scale") as caught:
        ztorch.load_model(on_meta(), saved, strict)
    assert "assign=True" in str(caught.value.hint)


@pytest.mark.parametrize("assign", [True, False])
def test_a_load_to_the_meta_device_stays_there(saved: Any, assign: bool) -> None:
    model = on_meta()
    assert ztorch.load_model(model, saved, device="meta", assign=assign) == ([], [])
    assert len(left_on_meta(model)) == 6


def test_tied_buffers_stay_tied(tmp_path: Path) -> None:
    ztorch.save_model(Attention(shares=True), tmp_path / "m.zt")
    model = on_meta(shares=True)
    ztorch.load_model(model, tmp_path / "m.zt", strict=False, assign=True)
    assert model.second.scale is model.first.scale
    assert model.first.scale.tolist() == [0, 1, 2]


def test_a_buffer_that_is_not_saved_takes_the_one_it_is_tied_to(tmp_path: Path) -> None:
    ztorch.save_model(Attention(), tmp_path / "m.zt")
    model = on_meta()
    for rotary in (model.first, model.second):
        rotary.frequencies = rotary.scale
    assert ztorch.load_model(model, tmp_path / "m.zt", assign=True) == ([], [])
    assert model.second.frequencies is model.second.scale
    assert "frequencies" not in dict(model.second.named_parameters())


@pytest.mark.parametrize("model", [{}, None, torch.nn.Linear], ids=["dict", "None", "class"])
def test_only_models_are_models(tmp_path: Path, model: Any) -> None:
    ztorch.save_file({}, tmp_path / "m.zt")
    with pytest.raises(ArgumentTypeError):
        ztorch.save_model(model, tmp_path / "n.zt")
    with pytest.raises(ArgumentTypeError):
        ztorch.load_model(model, tmp_path / "m.zt")


def test_a_model_without_weights_is_not_saved(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = Language()
    with pytest.raises(NotRepresentableError, match=r"'embed.weight'.*meta device"):
        ztorch.save_model(model, tmp_path / "m.zt")
    with pytest.raises(NotRepresentableError):
        ztorch.save_model(torch.nn.LazyLinear(2), tmp_path / "m.zt")


def test_a_lazy_model_takes_what_was_saved(tmp_path: Path) -> None:
    ztorch.save_model(torch.nn.Linear(3, 2), tmp_path / "m.zt")
    lazy = torch.nn.LazyLinear(2)
    assert ztorch.load_model(lazy, tmp_path / "m.zt") == ([], [])
    assert lazy.weight.shape == (2, 3)


def test_extra_state_is_no_tensor(tmp_path: Path) -> None:
    class Stateful(torch.nn.Linear):  # type: ignore[misc]
        def get_extra_state(self) -> Any:
            return {"step": 1}

    with pytest.raises(ArgumentTypeError, match="_extra_state"):
        ztorch.save_model(Stateful(2, 2), tmp_path / "m.zt")


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("is_tied", [True, False])
def test_equal_tensors_of_a_file_are_tied_only_where_the_model_ties_them(
    is_tied: bool, copy: bool, tmp_path: Path
) -> None:
    """A canonical file has equal bytes once: the bias and the mean, and here both weights."""
    model = Language(is_tied=is_tied)
    with torch.no_grad():
        model.embed.weight.fill_(2)
        model.head.weight.fill_(2)
    ztorch.save_model(model, tmp_path / "m.zt", version="2.1", canonical=True)
    other = Language(2, is_tied=is_tied)
    assert ztorch.load_model(other, tmp_path / "m.zt", copy=copy, assign=True) == ([], [])
    assert state(other) == state(model)
    assert (other.head.weight is other.embed.weight) is is_tied
    with torch.no_grad():
        other.norm.bias.fill_(7)
        other.embed.weight.fill_(3)
    assert other.norm.running_mean.tolist() == [0, 0, 0, 0]
    assert other.head.weight.unique().tolist() == [3 if is_tied else 2]
