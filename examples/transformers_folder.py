"""Convert folders of models, load them as their libraries do, and convert them back.

Needs transformers and torch; with diffusers, peft or timm it shows these, too. The models are tiny
random ones, so nothing is downloaded, and lie in a folder that is removed at the end.
"""

import contextlib
import importlib.util
import tempfile

import torch
import transformers

import ztensor
from ztensor.transformers import from_pretrained

SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **HEADS)),
    # Its experts are fused in the model, and are single tensors in files.
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, **HEADS, num_local_experts=4)
    ),
    # Its first and its last weight are one.
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=96, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
        )
    ),
}
TOKENS = torch.arange(12).reshape(2, 6)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS).logits


def said(what: str, one: torch.Tensor, other: torch.Tensor) -> None:
    print(f"{what}: {'equal' if torch.equal(one, other) else 'DIFFERENT'}")


def show_transformers() -> None:
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model = make().eval()
        model.save_pretrained(name)  # the folder as its library writes it
        ztensor.convert_folder(name, f"{name}-zt")
        loaded = from_pretrained(f"{name}-zt", transformers.AutoModelForCausalLM)
        said(f"{name}, loaded from .zt", logits(loaded), logits(model))
        ztensor.convert_folder(f"{name}-zt", f"{name}-back", to="safetensors")
        stock = transformers.AutoModelForCausalLM.from_pretrained(f"{name}-back")
        said(f"{name}, converted back", logits(stock), logits(model))


def show_diffusers() -> None:
    import diffusers

    from ztensor import diffusers as ours

    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    pipeline = diffusers.DDPMPipeline(unet=unet, scheduler=diffusers.DDPMScheduler())
    ours.save_pretrained(pipeline, "pipeline")
    loaded = ours.from_pretrained("pipeline", diffusers.DiffusionPipeline)
    noise = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        one, other = (some.unet(noise, 3).sample for some in (loaded, pipeline))
    said("a pipeline", one, other)


def show_peft() -> None:
    import peft

    from ztensor import peft as ours

    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    base = from_pretrained("llama-zt", transformers.AutoModelForCausalLM)
    model = peft.get_peft_model(base, config).eval()
    ours.save_pretrained(model, "adapter")
    again = from_pretrained("llama-zt", transformers.AutoModelForCausalLM)
    said("an adapter", logits(ours.from_pretrained(again, "adapter")), logits(model))


def show_timm() -> None:
    import timm

    from ztensor.torch import load_file, save_model

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=7).eval()
    save_model(model, "resnet.zt")
    overlay = {"state_dict": load_file("resnet.zt"), "num_classes": 7}
    loaded = timm.create_model(
        "resnet10t", pretrained=True, num_classes=7, pretrained_cfg_overlay=overlay
    ).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        said("a model of timm", loaded(images), model(images))


OTHERS = {"diffusers": show_diffusers, "peft": show_peft, "timm": show_timm}

# On Windows a mapped file cannot be removed.
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.chdir(folder):
    show_transformers()
    for library, show in OTHERS.items():
        if importlib.util.find_spec(library) is not None:
            show()
        else:
            print(f"{library} is not installed")
