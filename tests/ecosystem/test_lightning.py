"""Lightning: its checkpoints as trees, and resumed runs compared with its own files."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flipping import flip
from ztensor.errors import (
    ArgumentTypeError,
    DigestMismatchError,
    NotRepresentableError,
    SourceNotFoundError,
    UsageError,
)


def run(folder: Path, plugins: list[Any], epochs: int, resume: Any = None, **options: Any) -> Any:
    """Train from one seed, and return the trainer and its module."""
    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Small(LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self, width: int = 8, words: tuple[str, ...] = ("a",)) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(4, width),
                torch.nn.BatchNorm1d(width),
                torch.nn.Dropout(0.2),
                torch.nn.Linear(width, 1),
            )

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.layers(batch[0]).square().mean()
            self.log("loss", loss, on_epoch=True)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3])
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    seed_everything(3, verbose=False)
    data = torch.utils.data.TensorDataset(torch.randn(32, 4))
    kept = ModelCheckpoint(
        dirpath=folder, filename="{epoch}", save_top_k=2, monitor="loss", save_last=True
    )
    if options.get("suffix"):
        kept.FILE_EXTENSION = options["suffix"]
    trainer = Trainer(
        max_epochs=epochs,
        plugins=plugins,
        callbacks=[kept],
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Small(words=("a", "b"))
    # The order of batches is drawn from torch's generator, which a checkpoint does not hold.
    torch.manual_seed(11 if resume else 7)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    trainer.fit(module, loader, ckpt_path=resume)
    return trainer, module, kept


def same(one: Any, other: Any) -> bool:
    import torch

    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("suffix", [".ckpt", ".zt"])
def test_a_resumed_run_equals_the_one_of_a_stock_checkpoint(tmp_path: Path, suffix: str) -> None:
    import torch

    from ztensor.lightning import CheckpointIO

    run(tmp_path / "stock", [], 2)
    _, _, kept = run(tmp_path / "ours", [CheckpointIO()], 2, suffix=suffix)
    assert kept.last_model_path.endswith(suffix)
    with (tmp_path / "ours" / f"last{suffix}").open("rb") as file:
        assert file.read(4) != b"PK\x03\x04"  # no archive of pickles
    stock = torch.load(tmp_path / "stock" / "last.ckpt", weights_only=False)
    ours = CheckpointIO().load_checkpoint(tmp_path / "ours" / f"last{suffix}")
    require_same(ours, stock, tmp_path)
    _, one, _ = run(tmp_path / "stock", [], 5, tmp_path / "stock" / "last.ckpt")
    trainer, other, kept = run(
        tmp_path / "ours", [CheckpointIO()], 5, tmp_path / "ours" / f"last{suffix}", suffix=suffix
    )
    assert same(one, other)
    assert trainer.current_epoch == 5
    left = {path.name for path in (tmp_path / "ours").iterdir()}
    assert len(left) == 3  # two best and the last: older ones were removed
    assert f"last{suffix}" in left


def require_same(ours: Any, stock: Any, folder: Path) -> None:
    """Compare two checkpoints, types included; paths of their own folders apart."""
    import torch

    if isinstance(stock, str):
        for place in (str(folder / "stock"), str(folder / "ours")):
            ours, stock = ours.replace(place, ""), stock.replace(place, "")
        assert ours.replace(".zt", ".ckpt") == stock
        return
    assert type(ours) is type(stock)
    if isinstance(stock, dict):
        assert len(ours) == len(stock)
        for (a, x), (b, y) in zip(ours.items(), stock.items(), strict=True):
            require_same(a, b, folder)
            require_same(x, y, folder)
    elif isinstance(stock, (list, tuple)):
        assert len(ours) == len(stock)
        for x, y in zip(ours, stock, strict=True):
            require_same(x, y, folder)
    elif torch.is_tensor(stock):
        assert ours.dtype == stock.dtype
        assert torch.equal(ours, stock)
    else:
        assert ours == stock


def test_a_module_is_loaded_from_a_checkpoint(tmp_path: Path) -> None:
    from ztensor.lightning import CheckpointIO, load_from_checkpoint

    _, module, kept = run(tmp_path, [CheckpointIO()], 1)
    found = load_from_checkpoint(type(module), kept.last_model_path)
    assert same(found, module)
    assert found.hparams["words"] == ("a", "b")
    other = load_from_checkpoint(type(module), kept.last_model_path, words=("c",))
    assert other.hparams["words"] == ("c",)
    with pytest.raises(ArgumentTypeError):
        load_from_checkpoint(dict, kept.last_model_path)


def test_mistakes_are_refused(tmp_path: Path) -> None:
    import torch

    from ztensor.lightning import CheckpointIO

    plugin = CheckpointIO()
    path = tmp_path / "new" / "a.ckpt"
    with pytest.raises(NotRepresentableError):
        plugin.save_checkpoint({"hyper_parameters": {"f": lambda: 0}}, path)
    assert not path.exists()
    with pytest.raises(SourceNotFoundError):
        plugin.load_checkpoint(path)
    plugin.save_checkpoint({"w": torch.ones(100)}, path)
    with pytest.raises(UsageError):
        plugin.load_checkpoint(path, {"cuda:0": "cuda:1"})
    assert torch.equal(plugin.load_checkpoint(path, "cpu")["w"], torch.ones(100))
    assert plugin.load_checkpoint(path, lambda storage, _: storage, weights_only=True)
    flip(path, 70)
    with pytest.raises(DigestMismatchError):
        plugin.load_checkpoint(path)
    torch.save({"w": torch.ones(3)}, tmp_path / "stock.ckpt")
    with pytest.raises(UsageError):
        plugin.load_checkpoint(tmp_path / "stock.ckpt")
    plugin.remove_checkpoint(path)
    plugin.remove_checkpoint(path)
    assert not path.exists()


def test_it_is_a_plugin_of_either_distribution() -> None:
    import lightning.pytorch as lightning_trainer

    from ztensor import lightning as module

    module.__dict__.pop("CheckpointIO", None)
    assert "pytorch_lightning" not in sys.modules
    plugin = module.CheckpointIO()
    trainer = lightning_trainer.Trainer(plugins=[plugin], logger=False, accelerator="cpu")
    assert trainer.strategy.checkpoint_io is plugin
    other = importlib.import_module("pytorch_lightning")
    module.__dict__.pop("CheckpointIO", None)
    plugin = module.CheckpointIO()
    for kind in (lightning_trainer.Trainer, other.Trainer):
        trainer = kind(plugins=[plugin], logger=False, accelerator="cpu")
        assert trainer.strategy.checkpoint_io is plugin
    import pickle

    assert type(pickle.loads(pickle.dumps(plugin))) is type(plugin)
