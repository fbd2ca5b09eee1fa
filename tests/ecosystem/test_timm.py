"""timm: a state dict of ours is what `create_model` takes its weights from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import ztensor
from tests.ecosystem.libraries import timm, torch


@pytest.fixture(autouse=True)
def _operators() -> None:
    """Name the operators of torchvision's library where it was built for another torch.

    timm imports torchvision, which describes these two whether or not its library could be loaded.
    No test calls them.
    """
    lists = "Tensor dets, Tensor scores, float iou_threshold"
    if importlib.util.find_spec("torchvision") and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}({lists}) -> Tensor")
        KEPT.append(library)


KEPT: list[object] = []  # the names last as long as these


@pytest.mark.parametrize("copy", [False, True], ids=["mapped", "owned"])
def test_a_model_is_created_from_a_file(tmp_path: Path, copy: bool) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=7).eval()
    ztensor.torch.save_model(model, tmp_path / "model.zt")
    torch.manual_seed(1)
    other = timm.create_model(
        "resnet10t",
        pretrained=True,
        num_classes=7,
        pretrained_cfg_overlay={
            "state_dict": ztensor.torch.load_file(tmp_path / "model.zt", copy=copy),
            "num_classes": 7,
        },
    ).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(other(images), model(images))


def test_a_new_head_gets_other_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=7).eval()
    ztensor.torch.save_model(model, tmp_path / "model.zt")
    overlay = {"state_dict": ztensor.torch.load_file(tmp_path / "model.zt"), "num_classes": 7}
    other = timm.create_model(
        "resnet10t", pretrained=True, num_classes=3, pretrained_cfg_overlay=overlay
    )
    assert other.get_classifier().weight.shape[0] == 3
    body = model.state_dict()
    same = [
        torch.equal(value, body[name])
        for name, value in other.state_dict().items()
        if name in body and body[name].shape == value.shape
    ]
    assert len(same) > 50
    assert all(same)


def test_a_model_on_the_meta_device_takes_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=7).eval()
    ztensor.torch.save_model(model, tmp_path / "model.zt")
    with torch.device("meta"):
        other = timm.create_model("resnet10t", num_classes=7)
    assert ztensor.torch.load_model(other, tmp_path / "model.zt", assign=True) == ([], [])
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(other.eval()(images), model(images))
