"""diffusers: models and pipelines saved and loaded by us against the library's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.ecosystem.libraries import Lazy, diffusers, flipped, refused_by, torch, transformers

face: Any = Lazy("ztensor.diffusers")


def unet() -> Any:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip


def pipeline() -> Any:
    return diffusers.DDPMPipeline(unet=unet(), scheduler=diffusers.DDPMScheduler())


def text_pipeline() -> Any:
    """Return a pipeline with models of both libraries."""
    torch.manual_seed(0)
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=1,
        )
    ).eval()  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8,), norm_num_groups=4, latent_channels=4, sample_size=8
    ).eval()
    net = diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), norm_num_groups=4, cross_attention_dim=16,
        layers_per_block=1, attention_head_dim=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip
    return diffusers.StableDiffusionPipeline(
        vae=vae, text_encoder=text, tokenizer=None, unet=net,
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )  # fmt: skip


def image(pipe: Any) -> Any:
    made = pipe(
        batch_size=1, num_inference_steps=2, generator=torch.Generator().manual_seed(0),
        output_type="np",
    )  # fmt: skip
    return torch.from_numpy(made.images)


def equal_states(one: Any, other: Any) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(mine[name], theirs[name]) for name in mine
    )


@pytest.mark.parametrize("size", ["10GB", "20KB"], ids=["one", "shards"])
def test_a_model(tmp_path: Path, size: str) -> None:
    model = unet()
    face.save_pretrained(model, tmp_path, max_shard_size=size)
    assert not list(tmp_path.glob("*.safetensors"))
    loaded = face.from_pretrained(tmp_path, diffusers.UNet2DModel)
    assert not any(value.is_meta for value in [*loaded.parameters(), *loaded.buffers()])
    with torch.no_grad():
        sample = torch.randn(1, 3, 8, 8)
        assert torch.equal(loaded(sample, 3).sample, model(sample, 3).sample)


def test_a_model_of_the_library_and_its_variant(tmp_path: Path) -> None:
    model = unet()
    model.save_pretrained(tmp_path, variant="fp16")
    assert equal_states(
        model, face.from_pretrained(tmp_path, diffusers.UNet2DModel, variant="fp16")
    )


def test_another_type(tmp_path: Path) -> None:
    face.save_pretrained(unet(), tmp_path / "ours")
    unet().save_pretrained(tmp_path / "stock")
    ours = face.from_pretrained(tmp_path / "ours", diffusers.UNet2DModel, dtype=torch.bfloat16)
    stock = diffusers.UNet2DModel.from_pretrained(tmp_path / "stock", torch_dtype=torch.bfloat16)
    assert ours.dtype == torch.bfloat16
    assert equal_states(ours, stock)


def test_quantized_weights_become_floats(tmp_path: Path) -> None:
    file = tmp_path / "diffusion_pytorch_model.zt"
    face.save_pretrained(unet(), tmp_path)
    ztensor.convert(file, tmp_path / "q.zt", quantize="int8 g9", exclude="*.bias")
    os.replace(tmp_path / "q.zt", file)
    loaded = face.from_pretrained(tmp_path, diffusers.UNet2DModel, dequantize=True)
    expected = ztensor.torch.load_file(file, dequantize=True)
    assert all(value.equal(expected[name]) for name, value in loaded.state_dict().items())


def test_a_pipeline(tmp_path: Path) -> None:
    pipe = pipeline()
    pipe.set_progress_bar_config(disable=True)
    face.save_pretrained(pipe, tmp_path)
    assert (tmp_path / "unet" / "diffusion_pytorch_model.zt").is_file()
    loaded = face.from_pretrained(tmp_path, diffusers.DiffusionPipeline)
    loaded.set_progress_bar_config(disable=True)
    assert type(loaded) is diffusers.DDPMPipeline
    assert torch.equal(image(loaded), image(pipe))


def test_a_pipeline_with_models_of_transformers(tmp_path: Path) -> None:
    pipe = text_pipeline()
    face.save_pretrained(pipe, tmp_path)
    assert (tmp_path / "text_encoder" / "model.zt").is_file()
    assert not list(tmp_path.rglob("*.safetensors"))
    loaded = face.from_pretrained(tmp_path, diffusers.StableDiffusionPipeline, tokenizer=None)
    for name in ("vae", "unet", "text_encoder"):
        assert equal_states(getattr(pipe, name), getattr(loaded, name)), name
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        one, other = (p.text_encoder(tokens).last_hidden_state for p in (pipe, loaded))
    assert torch.equal(one, other)
    half = face.from_pretrained(
        tmp_path, diffusers.StableDiffusionPipeline, dtype=torch.bfloat16, tokenizer=None
    )
    assert half.unet.dtype == half.text_encoder.dtype == torch.bfloat16


def test_a_folder_converted_there_and_back(tmp_path: Path) -> None:
    pipe = text_pipeline()
    pipe.save_pretrained(tmp_path / "stock")
    ztensor.convert_folder(tmp_path / "stock", tmp_path / "ours", to="zt")
    assert not list((tmp_path / "ours").rglob("*.safetensors"))
    loaded = face.from_pretrained(
        tmp_path / "ours", diffusers.StableDiffusionPipeline, tokenizer=None
    )
    ztensor.convert_folder(tmp_path / "ours", tmp_path / "back", to="safetensors")
    back = diffusers.StableDiffusionPipeline.from_pretrained(tmp_path / "back", tokenizer=None)
    for name in ("vae", "unet", "text_encoder"):
        assert equal_states(getattr(pipe, name), getattr(loaded, name)), name
        assert equal_states(getattr(pipe, name), getattr(back, name)), name


# --- Errors -------------------------------------------------------------------------------------


def refused(folder: Path, cls: Any, *parts: str, **options: Any) -> None:
    refused_by(face, folder, cls, parts=parts, **options)


def test_missing_keys_are_named(tmp_path: Path) -> None:
    face.save_pretrained(unet(), tmp_path)
    file = tmp_path / "diffusion_pytorch_model.zt"
    tensors = ztensor.torch.load_file(file, copy=True)
    tensors["stranger"] = tensors.pop("conv_in.weight")
    ztensor.torch.save_file(tensors, file)
    refused(tmp_path, diffusers.UNet2DModel, "conv_in.weight", "stranger")


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_flipped_bit_is_named(dtype: str | None, tmp_path: Path) -> None:
    face.save_pretrained(unet(), tmp_path)
    file = tmp_path / "diffusion_pytorch_model.zt"
    flipped(file, "conv_in.weight")
    options = {} if dtype is None else {"dtype": getattr(torch, dtype)}
    refused(tmp_path, diffusers.UNet2DModel, file.name, "conv_in.weight", **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("../unet", ["diffusers", "UNet2DModel"]), ("unet", ["diffusers", 3]), ("a/b", ["x", "y"])],
)
def test_a_malformed_component_of_a_pipeline(tmp_path: Path, name: str, value: Any) -> None:
    face.save_pretrained(pipeline(), tmp_path / "p")
    index = tmp_path / "p" / "model_index.json"
    values = json.loads(index.read_text())
    index.write_text(json.dumps({**values, name: value}))
    refused(tmp_path / "p", diffusers.DiffusionPipeline)


def test_a_folder_of_a_pipeline_that_links_out(tmp_path: Path) -> None:
    face.save_pretrained(pipeline(), tmp_path / "p")
    os.rename(tmp_path / "p" / "unet", tmp_path / "unet")
    os.symlink(tmp_path / "unet", tmp_path / "p" / "unet")
    refused(tmp_path / "p", diffusers.DiffusionPipeline, "link")


def test_only_models_are_loaded_and_saved(tmp_path: Path) -> None:
    refused(tmp_path, dict)
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        face.save_pretrained(torch.nn.Linear(2, 2), tmp_path)
