"""transformers: models saved and loaded by us against those saved and loaded by the library."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.ecosystem.libraries import Lazy, flipped, refused_by, torch, transformers

face: Any = Lazy("ztensor.transformers")


def llama(**more: Any) -> Any:
    sizes = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **more))


def mixtral() -> Any:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
        )
    )  # fmt: skip


def gpt2() -> Any:
    sizes = {"vocab_size": 96, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    )


def t5() -> Any:
    sizes = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes, num_heads=4, decoder_start_token_id=0)
    )


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "llama": (llama, "AutoModelForCausalLM"),
    "llama-tied": (lambda: llama(tie_word_embeddings=True), "AutoModelForCausalLM"),
    "mixtral": (mixtral, "AutoModelForCausalLM"),
    "gpt2": (gpt2, "AutoModelForCausalLM"),
    "t5": (t5, "AutoModelForSeq2SeqLM"),
}


def made(kind: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return MODELS[kind][0]().eval()


def auto(kind: str) -> Any:
    return getattr(transformers, MODELS[kind][1])


def logits(model: Any) -> Any:
    tokens = torch.arange(12).reshape(2, 6)
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=tokens, **more).logits


def same(one: Any, other: Any) -> bool:
    return bool(torch.equal(logits(one), logits(other)))


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_saved_and_loaded_by_us(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    face.save_pretrained(model, tmp_path)
    assert "model.zt" in os.listdir(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    loaded, report = face.from_pretrained(tmp_path, auto(kind), output_loading_info=True)
    assert type(loaded) is type(model)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert same(model, loaded)
    assert same(model, face.from_pretrained(tmp_path, type(model), copy=True, strict=True))


@pytest.mark.parametrize("kind", MODELS)
def test_our_file_has_the_names_of_the_librarys(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    face.save_pretrained(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "stock")
    with (
        ztensor.open(tmp_path / "ours" / "model.zt") as ours,
        ztensor.open(tmp_path / "stock" / "model.safetensors") as stock,
    ):
        assert set(ours) == set(stock)
    ours_config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert ours_config == json.loads((tmp_path / "stock" / "config.json").read_text())


@pytest.mark.parametrize("kind", MODELS)
def test_a_folder_of_the_library_is_loaded(kind: str, tmp_path: Path) -> None:
    model = made(kind)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert list(tmp_path.glob("*.index.json"))
    assert same(model, face.from_pretrained(tmp_path, auto(kind), strict=True))


@pytest.mark.parametrize("size", ["5GB", "20KB"], ids=["one", "shards"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_folder_converted_there_and_back(kind: str, size: str, tmp_path: Path) -> None:
    model = made(kind)
    model.save_pretrained(tmp_path / "stock", max_shard_size=size)
    ztensor.convert_folder(tmp_path / "stock", tmp_path / "ours")
    assert not list((tmp_path / "ours").glob("*.safetensors*"))
    assert same(model, face.from_pretrained(tmp_path / "ours", auto(kind), strict=True))
    ztensor.convert_folder(tmp_path / "ours", tmp_path / "back", to="safetensors")
    assert sorted(os.listdir(tmp_path / "back")) == sorted(os.listdir(tmp_path / "stock"))
    assert same(model, auto(kind).from_pretrained(tmp_path / "back"))


def test_saved_models_are_converted_for_the_library(tmp_path: Path) -> None:
    for kind in MODELS:
        model = made(kind)
        face.save_pretrained(model, tmp_path / kind, max_shard_size="20KB")
        ztensor.convert_folder(tmp_path / kind, tmp_path / f"{kind}-back", to="safetensors")
        assert same(model, auto(kind).from_pretrained(tmp_path / f"{kind}-back"))


def test_pickles_are_converted_for_the_library(tmp_path: Path) -> None:
    model = made("llama")
    model.config.save_pretrained(tmp_path / "old")
    torch.save(model.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    ztensor.convert_folder(tmp_path / "old", tmp_path / "new", to="safetensors", pickled=True)
    assert same(model, auto("llama").from_pretrained(tmp_path / "new"))


def test_shards_variants_and_subfolders(tmp_path: Path) -> None:
    model = made("mixtral")
    face.save_pretrained(model, tmp_path / "inner", max_shard_size="20KB", variant="fp16")
    assert len(list((tmp_path / "inner").glob("model.fp16-*.zt"))) > 2
    loaded = face.from_pretrained(tmp_path, auto("mixtral"), subfolder="inner", variant="fp16")
    assert same(model, loaded)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "auto"])
def test_dtype_is_what_the_library_makes_of_it(dtype: str, tmp_path: Path) -> None:
    model = made("mixtral")
    face.save_pretrained(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "stock")
    ours = face.from_pretrained(tmp_path / "ours", auto("mixtral"), dtype=dtype)
    stock = auto("mixtral").from_pretrained(tmp_path / "stock", dtype=dtype)
    assert ours.dtype == stock.dtype
    one, other = ours.state_dict(), stock.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_file_without_a_type_in_its_config_keeps_its_own(tmp_path: Path) -> None:
    face.save_pretrained(made("llama").to(torch.bfloat16), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["dtype"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    for dtype in (None, "auto"):
        assert face.from_pretrained(tmp_path, auto("llama"), dtype=dtype).dtype == torch.bfloat16


@pytest.mark.parametrize("device_map", ["cpu", "auto", {"": "cpu"}, {"model": "cpu", "lm_head": 0}])
def test_device_maps(device_map: Any, tmp_path: Path) -> None:
    if isinstance(device_map, dict) and 0 in device_map.values() and not torch.cuda.is_available():
        pytest.skip("two devices need a GPU")
    model = made("llama")
    face.save_pretrained(model, tmp_path)
    assert same(model, face.from_pretrained(tmp_path, auto("llama"), device_map=device_map).cpu())


def test_ties_stay_ties(tmp_path: Path) -> None:
    face.save_pretrained(made("gpt2"), tmp_path)
    loaded = face.from_pretrained(tmp_path, auto("gpt2"))
    assert loaded.lm_head.weight is loaded.transformer.wte.weight


def test_generation_config_comes_along(tmp_path: Path) -> None:
    model = made("llama")
    model.generation_config.max_new_tokens = 7
    face.save_pretrained(model, tmp_path)
    loaded = face.from_pretrained(tmp_path, auto("llama"))
    assert loaded.generation_config.max_new_tokens == 7
    assert loaded.name_or_path == loaded.config.name_or_path == str(tmp_path)
    loaded.save_pretrained(tmp_path / "again")  # it joins the name


def test_a_model_may_be_saved_where_it_was_loaded_from(tmp_path: Path) -> None:
    face.save_pretrained(made("llama"), tmp_path)
    loaded = face.from_pretrained(tmp_path, auto("llama"))
    with torch.no_grad():
        loaded.lm_head.weight.mul_(2)
    expected = logits(loaded)
    face.save_pretrained(loaded, tmp_path)
    assert torch.equal(logits(loaded), expected)
    assert torch.equal(logits(face.from_pretrained(tmp_path, auto("llama"))), expected)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("the system has no list of mapped files")
    face.save_pretrained(made("llama"), tmp_path)
    loaded = face.from_pretrained(tmp_path, auto("llama"))
    place = loaded.model.layers[0].mlp.up_proj.weight.data_ptr()
    file = str(tmp_path / "model.zt")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        lines = [line.split(None, 5) for line in maps]
    ranges = [line[0].split("-") for line in lines if line[-1].strip() == file]
    assert any(int(start, 16) <= place < int(stop, 16) for start, stop in ranges)
    del loaded
    gc.collect()


def test_a_folder_behind_a_url(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    from obstore.store import MemoryStore

    model, store = made("mixtral"), MemoryStore()
    face.save_pretrained(model, ztensor.Remote("s3://bucket/m", store), max_shard_size="40KB")
    loaded = face.from_pretrained("s3://bucket/m", auto("mixtral"), storage=store)
    assert same(model, loaded)
    assert loaded.generation_config.to_dict() == model.generation_config.to_dict()


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_quantized_weights_become_floats(dtype: str | None, tmp_path: Path) -> None:
    face.save_pretrained(made("llama"), tmp_path / "m")
    shutil.copytree(tmp_path / "m", tmp_path / "q")
    ztensor.convert(
        tmp_path / "m/model.zt", tmp_path / "q/model.zt", quantize="int8 g32", overwrite=True
    )
    with pytest.raises(ztensor.errors.ArgumentTypeError, match="dequantize"):
        face.from_pretrained(tmp_path / "q", auto("llama"))
    loaded = face.from_pretrained(tmp_path / "q", auto("llama"), dequantize=True, dtype=dtype)
    expected = ztensor.torch.load_file(tmp_path / "q/model.zt", dequantize=True)
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, expected[name].to(value.dtype)), name
    assert loaded.dtype == getattr(torch, dtype or "float32")


# --- Errors -------------------------------------------------------------------------------------


def refused(folder: Path, *parts: str, kind: str = "llama", **options: Any) -> None:
    refused_by(face, folder, auto(kind), parts=parts, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    face.save_pretrained(made("llama"), tmp_path / "model", max_shard_size="40KB")
    return tmp_path / "model"


def test_a_wrong_class_is_named(folder: Path) -> None:
    with pytest.raises(ztensor.errors.UsageError, match="GPT2LMHeadModel"):
        face.from_pretrained(folder, transformers.GPT2LMHeadModel)
    refused(folder, "T5", kind="t5")
    with pytest.raises(ztensor.errors.ArgumentTypeError):
        face.from_pretrained(folder, dict)


def test_missing_and_unexpected_keys_are_named(tmp_path: Path) -> None:
    face.save_pretrained(made("llama"), tmp_path)
    tensors = ztensor.torch.load_file(tmp_path / "model.zt", copy=True)
    tensors["stranger"] = tensors.pop("model.norm.weight")
    ztensor.torch.save_file(tensors, tmp_path / "model.zt")
    _, report = face.from_pretrained(tmp_path, auto("llama"), output_loading_info=True)
    assert set(report["missing_keys"]) == {"model.norm.weight"}
    assert set(report["unexpected_keys"]) == {"stranger"}
    refused(tmp_path, "model.norm.weight", "stranger", strict=True)


def test_another_shape_is_refused(tmp_path: Path) -> None:
    face.save_pretrained(made("llama"), tmp_path)
    tensors = ztensor.torch.load_file(tmp_path / "model.zt", copy=True)
    tensors["model.norm.weight"] = torch.zeros(5)
    ztensor.torch.save_file(tensors, tmp_path / "model.zt")
    refused(tmp_path, "ignore_mismatched_sizes")


@pytest.mark.parametrize(
    "more",
    [{}, {"dtype": "bfloat16"}, {"device_map": "cpu"}, {"copy": True}, {"verify": True}],
    ids=["eager", "cast", "placed", "copied", "asked"],
)
def test_a_flipped_bit_is_named_with_file_and_tensor(folder: Path, more: dict[str, Any]) -> None:
    file = sorted(folder.glob("model-*.zt"))[1]
    refused(folder, file.name, flipped(file), **more)


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard = sorted(folder.glob("model-*.zt"))[1]
    shard.unlink()
    refused(folder, shard.name)


@pytest.mark.parametrize("place", ["../out.zt", "/etc/passwd", "..\\out.zt", "a/../../out.zt"])
def test_an_index_that_leads_out_is_refused(folder: Path, place: str) -> None:
    shard = sorted(folder.glob("model-*.zt"))[0]
    shutil.copy(shard, folder.parent / "out.zt")
    index = folder / "model.zt.index.json"
    values = json.loads(index.read_text())
    values["weight_map"] = dict.fromkeys(values["weight_map"], place)
    index.write_text(json.dumps(values))
    refused(folder)


@pytest.mark.parametrize("name", ["config.json", "weights"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    face.save_pretrained(made("llama"), tmp_path / "m")
    name = "model.zt" if name == "weights" else name
    os.rename(tmp_path / "m" / name, tmp_path / name)
    os.symlink(tmp_path / name, tmp_path / "m" / name)
    refused(tmp_path / "m", "link")


def test_a_pickle_is_read_only_where_that_is_asked(tmp_path: Path) -> None:
    model = made("llama")
    face.save_pretrained(model, tmp_path)
    (tmp_path / "model.zt").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    refused(tmp_path, "pickled=True")
    assert same(model, face.from_pretrained(tmp_path, auto("llama"), pickled=True))
    os.rename(tmp_path / "pytorch_model.bin", tmp_path / "model.zt")
    refused(tmp_path, "model.zt", "pickled=True")


class Runs:
    """Its pickle makes a file."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (self.place,)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    face.save_pretrained(made("llama"), tmp_path)
    (tmp_path / "model.zt").unlink()
    torch.save({"w": torch.zeros(2), "x": Runs(str(tmp_path / "ran"))}, tmp_path / "model.zt")
    refused(tmp_path)
    os.rename(tmp_path / "model.zt", tmp_path / "pytorch_model.bin")
    refused(tmp_path, pickled=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"x"', '{"model_type": 3}', '{"model_type": "nothing"}', "{}",
             "[" * 100_000, '{"model_type": "llama", "hidden_size": "x"}'],
)  # fmt: skip
def test_a_malformed_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    refused(folder)


def test_a_config_of_a_gigabyte_is_not_read(folder: Path) -> None:
    with open(folder / "config.json", "r+b") as file:
        file.truncate(1 << 30)
    refused(folder, "config.json")


def test_code_of_a_folder_is_never_run(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    values |= {"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "code.py").write_text(f"import os; os.mkdir({str(folder / 'ran')!r})")
    refused(folder, "config=")
    assert not (folder / "ran").exists()


def test_missing_files_are_named(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere")
    refused(tmp_path, "config.json")
    made("llama").config.save_pretrained(tmp_path)
    refused(tmp_path, "model.zt")


def test_the_disk_is_refused(folder: Path) -> None:
    refused(folder, "disk", device_map="disk")


def test_a_quantized_model_is_refused(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "fp8"}
    (folder / "config.json").write_text(json.dumps(values))
    refused(folder, "quantized")


def test_only_models_of_the_library_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ztensor.errors.ArgumentTypeError, match="PreTrainedModel"):
        face.save_pretrained(torch.nn.Linear(2, 2), tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with pytest.raises(ztensor.errors.UsageError):
        face.save_pretrained(made("llama"), "https://host/model")
