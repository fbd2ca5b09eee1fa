"""The `Trainer` of transformers: steps in a manager, and folders it resumes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ztensor
from ztensor.errors import (
    ArgumentTypeError,
    ObjectNotFoundError,
    SourceNotFoundError,
    UsageError,
)


def trained(folder: Path, callbacks: list[Any], steps: int, resume: Any = None) -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    set_seed(3)
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=32, n_positions=16,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)  # its embedding and head are tied
    rows = torch.randint(0, 32, (24, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in rows]
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, save_steps=4, logging_steps=2, report_to=[],
        per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, learning_rate=0.01,
        lr_scheduler_type="cosine",
    )  # fmt: skip
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_run_resumes_from_a_step_as_from_its_own_folder(tmp_path: Path) -> None:
    import torch

    manager = ztensor.CheckpointManager(tmp_path / "steps", keep_best=("loss", 1, "min"))
    callback = ztensor.trainer.CheckpointCallback(manager)
    first = trained(tmp_path / "a", [callback], 12)
    assert manager.steps() == [4, 8, 12]
    assert "loss" in manager.checkpoints()[0].metrics
    folder = ztensor.trainer.unpack(manager, tmp_path / "resumed", step=8)
    stock = tmp_path / "a" / "checkpoint-8"
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        require_same(
            torch.load(f"{folder}/{name}", weights_only=False),
            torch.load(stock / name, weights_only=False),
        )
    folders = (stock, tmp_path / "resumed")
    states = [json.loads((path / "trainer_state.json").read_text()) for path in folders]
    assert states[0] == states[1]
    names = {path.name for path in stock.iterdir()} - {"training_args.bin"} | {"unpacked.txt"}
    assert {path.name for path in (tmp_path / "resumed").iterdir()} == names

    own = trained(tmp_path / "b", [], 12, str(stock))
    ours = trained(tmp_path / "c", [], 12, folder)
    for one in (own, ours):
        assert one.state.global_step == 12
        require_same(dict(one.model.state_dict()), dict(first.model.state_dict()))
    whole = ztensor.trainer.unpack(manager.path(12), tmp_path / "last")
    from transformers import GPT2LMHeadModel

    loaded = GPT2LMHeadModel.from_pretrained(whole)
    require_same(dict(loaded.state_dict()), dict(first.model.state_dict()))


def require_same(one: Any, other: Any) -> None:
    import numpy as np
    import torch

    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            require_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for x, y in zip(one, other, strict=True):
            require_same(x, y)
    elif torch.is_tensor(one):
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        assert np.array_equal(one, other)
    else:
        assert one == other


def test_mistakes_are_refused(tmp_path: Path) -> None:
    manager = ztensor.CheckpointManager(tmp_path / "steps", background=False)
    with pytest.raises(ArgumentTypeError):
        ztensor.trainer.CheckpointCallback(tmp_path)  # type: ignore[arg-type]
    assert ztensor.trainer.unpack(manager, tmp_path / "new") is None
    manager.save(1, {"model": {}})
    with pytest.raises(UsageError):
        ztensor.trainer.unpack(manager, tmp_path / "new")
    with pytest.raises(ObjectNotFoundError):
        ztensor.trainer.unpack(manager, tmp_path / "new", step=2)
    with pytest.raises(SourceNotFoundError):
        ztensor.trainer.unpack(tmp_path / "none.zt", tmp_path / "new")
    names = ("model", "optimizer", "scheduler", "random", "trainer_state")
    parts: dict[str, Any] = {name: {} for name in names}
    manager.save(2, parts)
    with pytest.raises(UsageError):
        ztensor.trainer.unpack(manager, tmp_path / "steps")
