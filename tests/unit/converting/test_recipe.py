"""Recipes: the examples there and back, the arithmetic of steps, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.counting import CountedFile
from tests.flipping import flip_object
from tests.tracing import traced
from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DigestMismatchError,
    LimitError,
    NotRepresentableError,
    SourceError,
    UsageError,
)
from ztensor.numpy import load_file, save_file

Pattern, Recipe = ztensor.converting.Pattern, ztensor.converting.Recipe
RECIPES = Path(__file__).parents[3] / "examples" / "recipes"
RNG = np.random.default_rng(0)
LAYER = "model.layers.{}."


def noise(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def gpt2() -> dict[str, Any]:
    state = {"transformer.wte.weight": noise(20, 8), "transformer.wpe.weight": noise(6, 8)}
    state |= {f"transformer.ln_f.{part}": noise(8) for part in ("weight", "bias")}
    sizes = {"attn.c_attn": (8, 24), "attn.c_proj": (8, 8), "mlp.c_fc": (8, 32)}
    sizes |= {"mlp.c_proj": (32, 8)}
    for layer in range(2):
        start = f"transformer.h.{layer}."
        for name, shape in sizes.items():
            state[f"{start}{name}.weight"] = noise(*shape)
            state[f"{start}{name}.bias"] = noise(shape[1])
        for norm in ("ln_1", "ln_2"):
            state |= {f"{start}{norm}.{part}": noise(8) for part in ("weight", "bias")}
    return state


def llama(*, experts: int = 0) -> dict[str, Any]:
    """Return a state with 4 heads of 4, 2 of them for k and v."""
    state = {"model.embed_tokens.weight": noise(20, 16), "model.norm.weight": noise(16)}
    state |= {"lm_head.weight": noise(20, 16)}
    sizes = {"self_attn.q_proj": (16, 16), "self_attn.k_proj": (8, 16), "self_attn.v_proj": (8, 16)}
    sizes |= {"self_attn.o_proj": (16, 16)}
    sizes |= {"input_layernorm": (16,), "post_attention_layernorm": (16,)}  # type: ignore[dict-item]
    mlp = {"gate_proj": (24, 16), "up_proj": (24, 16), "down_proj": (16, 24)}
    for expert in range(experts):
        sizes |= {f"mlp.experts.{expert}.{name}": shape for name, shape in mlp.items()}
    sizes |= {} if experts else {f"mlp.{name}": shape for name, shape in mlp.items()}
    for layer in range(2):
        start = LAYER.format(layer)
        state |= {f"{start}{name}.weight": noise(*shape) for name, shape in sizes.items()}
    return state


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        (array.dtype, array.shape, array.tobytes())
        == (other[name].dtype, other[name].shape, other[name].tobytes())
        for name, array in one.items()
    )


def expected(recipe: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state after a recipe of the examples, by NumPy alone."""
    new = dict(state)
    for layer in range(2):
        start = LAYER.format(layer)
        if recipe == "gpt2":
            start = f"transformer.h.{layer}."
            for part in ("weight", "bias"):
                whole = new.pop(f"{start}attn.c_attn.{part}").T
                for word, cut in zip("qkv", np.split(whole, 3), strict=True):
                    new[f"{start}attn.{word}_proj.{part}"] = cut
            for name in ("attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
                new[f"{start}{name}.weight"] = new[f"{start}{name}.weight"].T
            continue
        if recipe == "qwen_moe":
            mlp = f"{start}mlp.experts."
            stacks = [
                np.stack([new.pop(f"{mlp}{expert}.{word}_proj.weight") for expert in range(11)])
                for word in ("gate", "up", "down")
            ]
            new[f"{mlp}gate_up_proj"] = np.concatenate(stacks[:2], 1)
            new[f"{mlp}down_proj"] = stacks[2]
            continue
        q, k, v = (new.pop(f"{start}self_attn.{word}_proj.weight") for word in "qkv")
        if recipe == "llama_meta":
            for word, array, heads in (("q", q, 4), ("k", k, 2)):
                turned = array.reshape(heads, 2, 2, 16).transpose(0, 2, 1, 3).reshape(array.shape)
                new[f"layers.{layer}.attention.w{word}.weight"] = turned
            new[f"layers.{layer}.attention.wv.weight"] = v
            names = {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1"}
            names |= {"mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3"}
            names |= {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
            for old, name in names.items():
                new[f"layers.{layer}.{name}.weight"] = new.pop(f"{start}{old}.weight")
            continue
        gate_up = np.concatenate([new.pop(f"{start}mlp.{w}_proj.weight") for w in ("gate", "up")])
        if recipe == "llama_fused":
            new[f"{start}self_attn.qkv_proj.weight"] = np.concatenate([q, k, v])
            new[f"{start}mlp.gate_up_proj.weight"] = gate_up
        else:
            parts = [one.reshape(2, -1, 16) for one in (q, k, v)]
            fused = np.concatenate(parts, 1).reshape(32, 16)
            new[f"decoder.layers.{layer}.self_attention.linear_qkv.weight"] = fused
            new[f"decoder.layers.{layer}.mlp.linear_fc1.weight"] = gate_up
    if recipe == "llama_meta":
        new["tok_embeddings.weight"] = new.pop("model.embed_tokens.weight")
        new["norm.weight"] = new.pop("model.norm.weight")
        new["output.weight"] = new.pop("lm_head.weight")
    return new


STATES: dict[str, Callable[[], dict[str, Any]]] = {
    "gpt2": gpt2,
    "llama_fused": llama,
    "llama_megatron": llama,
    "llama_meta": llama,
    "qwen_moe": lambda: llama(experts=11),
}


@pytest.mark.parametrize("target", ["new.zt", "new.safetensors", "shards.safetensors"])
@pytest.mark.parametrize("recipe", STATES)
def test_recipes_there_and_back(recipe: str, target: str, tmp_path: Path) -> None:
    state = STATES[recipe]()
    save_file(state, tmp_path / "old.zt", compression=True)
    path = RECIPES / f"{recipe}.toml"
    options: dict[str, Any] = {"max_shard_size": 3000} if "shards" in target else {}
    report = ztensor.convert(
        tmp_path / "old.zt", tmp_path / target, recipe=path, check=True, **options
    )
    assert report.is_lossless
    assert not report.unchecked
    assert same(load_file(report.path), expected(recipe, state))
    back = ztensor.convert(report.path, tmp_path / "back.zt", recipe=path, reverse=True)
    assert back.is_lossless
    assert same(load_file(tmp_path / "back.zt"), state)


def test_every_example_is_tested() -> None:
    assert {path.stem for path in RECIPES.glob("*.toml")} == STATES.keys()


def made(recipe: Mapping[str, Any], state: Mapping[str, Any], folder: Path, **options: Any) -> Any:
    """Return the state after a recipe."""
    save_file(state, folder / "in.zt")
    ztensor.convert(folder / "in.zt", folder / "out.zt", recipe=recipe, **options)
    return load_file(folder / "out.zt")


GRID = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
STEPS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "transpose": ([{"transpose": [2, 0, 1]}], GRID.transpose(2, 0, 1)),
    "from the end": ([{"transpose": [-1, 0, -2]}], GRID.transpose(2, 0, 1)),
    "rearrange": ([{"rearrange": "a (b c) d -> (d a) c b"}], None),
    "merge": ([{"rearrange": "a b d -> (a b d)"}], GRID.reshape(-1)),
    "twice": ([{"transpose": [0, 2, 1]}, {"transpose": [1, 0, 2]}], GRID.transpose(2, 0, 1)),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("dtype", ["int16", "bool", "complex64", "float8_e4m3fn", "float64"])
def test_steps_of_one_object_have_an_inverse(case: str, dtype: str, tmp_path: Path) -> None:
    steps, result = STEPS[case]
    array = (GRID % 2 if dtype == "bool" else GRID).astype(np.dtype(dtype))
    sizes = {"a": 2, "b": 3, "c": 1, "d": 4}
    recipe = {"sizes": sizes, "rule": [{"from": "a.{n}", "to": "b.{n}", "steps": steps}]}
    new = made(recipe, {"a.x": array}, tmp_path)["b.x"]
    if result is not None and dtype == "int16":
        assert new.tolist() == result.tolist()
    assert new.dtype == array.dtype
    assert same(made(recipe, {"b.x": new}, tmp_path, reverse=True), {"a.x": array})


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_joins_and_cuts_along_any_axis(axis: int, tmp_path: Path) -> None:
    state = {f"x.{n}": GRID + n for n in range(12)}
    rule = {"from": "x.{n}", "to": "x"}
    stack = {"rule": [{**rule, "steps": [{"stack": axis, "over": "n"}]}]}
    cat = {"rule": [{**rule, "steps": [{"concatenate": axis, "over": "n", "sizes": [1] * 12}]}]}
    arrays = [state[f"x.{n}"] for n in range(12)]
    for recipe, whole in ((stack, np.stack(arrays, axis)), (cat, np.concatenate(arrays, axis))):
        new = made(recipe, state, tmp_path)
        assert same(new, {"x": whole})
        assert same(made(recipe, new, tmp_path, reverse=True), state)
    scalars = {f"x.{n}": np.array(n) for n in range(3)}
    flat = {"rule": [{**rule, "steps": [{"stack": 0, "over": "n"}]}]}
    assert same(made(flat, scalars, tmp_path), {"x": np.arange(3)})
    assert same(made(flat, {"x": np.arange(3)}, tmp_path, reverse=True), scalars)


def test_numbers_are_joined_in_numeric_order(tmp_path: Path) -> None:
    for width in (1, 2, 3):
        state = {f"x.{n:0{width}}": np.array(n) for n in sorted(range(12), key=str)}
        steps = [{"stack": 0, "over": "n"}]
        new = made(rule(from_="x.{n}", to="x", steps=steps), state, tmp_path)
        assert same(new, {"x": np.arange(12)})


def test_casts_go_with_other_options(tmp_path: Path) -> None:
    state = {"a": noise(64, 64, dtype="f4"), "b": noise(2, 3, dtype="f4"), "n": np.arange(2)}
    turned = {"from": "a", "to": "c", "steps": [{"transpose": [1, 0]}], "cast": "float16"}
    recipe = {"unmatched": "keep", "rule": [turned]}
    new = made(recipe, state, tmp_path, dtype="bfloat16")
    assert new["c"].tolist() == state["a"].T.astype(np.float16).tolist()
    assert new["b"].dtype == ml_dtypes.bfloat16
    assert new["n"].tolist() == [0, 1]
    only = made(recipe, state, tmp_path, include="c", compression="zstd", checksum="sha256")
    assert only.keys() == {"c"}
    ztensor.convert(
        tmp_path / "in.zt", tmp_path / "q.zt", recipe=recipe, include="c", quantize="int8"
    )
    with ztensor.open(tmp_path / "q.zt") as file:
        assert file.metadata("c").format == "quantized_group"
    with pytest.raises(UsageError):
        ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe=recipe, reverse=True)


def test_casts_change_floats_of_16_bits_and_more_alone(tmp_path: Path) -> None:
    codes = Tensor.quantize(noise(64, 64, dtype="float32"), bits=4, group_size=32)
    narrow = noise(2, 2, dtype=ml_dtypes.float8_e4m3fn)
    state = {"q": codes, "i": np.arange(4).reshape(2, 2), "n": narrow, "f": noise(2, 2)}
    save_file(state, tmp_path / "in.zt")
    steps = [{"transpose": [1, 0]}]
    rules: list[dict[str, Any]] = [{"keep": "q"}, {"from": "{n}", "steps": steps}]
    recipe = {"rule": [{**one, "cast": "float32"} for one in rules]}
    types = {row.name: row.dtype for row in Recipe(recipe).plan(tmp_path / "in.zt")}
    kept = {"q": "quantized_group", "i": "int64", "n": "f8_e4m3fn"}
    assert types == {**kept, "f": "float32"}
    ztensor.convert(tmp_path / "in.zt", tmp_path / "out.zt", recipe=recipe)
    with ztensor.open(tmp_path / "out.zt") as file:
        assert file.metadata("q").format == "quantized_group"
        assert {name: str(file[name].dtype) for name in "inf"} == {
            "i": "int64", "n": "float8_e4m3fn", "f": "float32",
        }  # fmt: skip
    half = {"rule": [{**one, "cast": "float16"} for one in rules]}
    ztensor.convert(tmp_path / "in.zt", tmp_path / "out.zt", recipe=half, dequantize=True)
    with ztensor.open(tmp_path / "out.zt") as file:
        assert file["q"].dtype == np.float16


AXES = "_ARRAY_DIMENSIONS"
OTHERS = {"unit": "m", "_FillValue": float("nan")}


@pytest.mark.parametrize(
    ("steps", "names", "after"),
    [
        ([{"transpose": [1, 0]}], ["x", "y"], ["y", "x"]),
        ([{"rearrange": "a b -> b a"}, {"transpose": [-1, 0]}], ["x", "y"], ["x", "y"]),
        ([{"rearrange": "a b -> (b a)"}], ["x", "y"], None),
        ([{"rearrange": "a b -> a b ()"}], ["x", "y"], None),
        ([{"concatenate": 0}], ["x", "y"], None),
        ([{"stack": 0}], ["x", "z"], None),
        ([{"transpose": [1, 0]}], ["x"], None),
    ],
)
def test_names_of_axes_move_with_them_or_are_lost(
    steps: list[dict[str, Any]], names: list[str], after: list[str] | None, tmp_path: Path
) -> None:
    is_pair = steps[0].keys() & {"stack", "concatenate"}
    with ztensor.Writer(tmp_path / "in.zt") as writer:
        writer.write("a", GRID[0], attributes={AXES: names, **OTHERS})
        if is_pair:
            writer.write("b", GRID[1], attributes={AXES: ["x", "y"], **OTHERS})
    recipe = rule(from_=["a", "b"] if is_pair else "a", to="c", steps=steps)
    report = ztensor.convert(tmp_path / "in.zt", tmp_path / "out.zt", recipe=recipe)
    with ztensor.open(tmp_path / "out.zt") as file:
        assert file.metadata("c").attributes.get(AXES) == after
        assert file.metadata("c").attributes["unit"] == "m"
    assert report.is_lossless == (after is not None)
    assert [loss for loss in report.lost if AXES in str(loss)] == list(report.lost)
    if after is None:
        with pytest.raises(NotRepresentableError):
            ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe=recipe, strict=True)


def test_other_attributes_that_differ_are_named(tmp_path: Path) -> None:
    for number, other in enumerate(({"unit": "mm"}, None)):
        path = tmp_path / f"{number}.zt"
        with ztensor.Writer(path) as writer:
            writer.write("a", GRID, attributes={"unit": "m"})
            writer.write("b", GRID, attributes=other)
        with pytest.raises(ArgumentValueError) as caught:
            Recipe(joining(concatenate=0)).plan(path)
        assert "'unit'" in str(caught.value)
        assert "--object" in str(caught.value.hint)


def test_tied_objects_stay_tied(tmp_path: Path) -> None:
    table = noise(300, 200)
    save_file({"wte": table, "head": table}, tmp_path / "in.zt")
    with ztensor.open(tmp_path / "in.zt") as file:
        assert file.location("wte") == file.location("head")
    turned = [{"transpose": [1, 0]}]
    for steps in ([], turned):
        pairs = ("wte", "a"), ("head", "b")
        recipe = {"rule": [{"from": old, "to": new, "steps": steps} for old, new in pairs]}
        ztensor.convert(tmp_path / "in.zt", tmp_path / "out.zt", recipe=recipe)
        with ztensor.open(tmp_path / "out.zt") as file:
            assert file.location("a") == file.location("b")
            assert file["a"].tolist() == (table.T if steps else table).tolist()


def test_other_layouts_are_renamed_only(tmp_path: Path) -> None:
    codes = Tensor.quantize(noise(64, 64, dtype="float32"), bits=4, group_size=32)
    save_file({"a": codes, "b": noise(2, 2)}, tmp_path / "in.zt")
    renamed = {"rule": [{"from": "{n}", "to": "new.{n}"}]}
    ztensor.convert(tmp_path / "in.zt", tmp_path / "out.zt", recipe=renamed)
    with ztensor.open(tmp_path / "out.zt") as file:
        assert list(file) == ["new.a", "new.b"]
        assert file.read("new.a").dequantize().tolist() == codes.dequantize().tolist()
    turned = {"rule": [{"from": "{n}", "steps": [{"transpose": [1, 0]}]}]}
    for state in ({"a": codes}, {"a": noise(4, 4).astype(ml_dtypes.float4_e2m1fn)}):
        save_file(state, tmp_path / "in.zt")
        with pytest.raises(NotRepresentableError) as caught:
            ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe=turned)
        assert caught.value.object_name == "a"
        assert not (tmp_path / "no.zt").exists()


def test_damage_is_found_when_objects_are_moved(tmp_path: Path) -> None:
    save_file({"a": noise(64, 64)}, tmp_path / "in.zt")
    flip_object(tmp_path / "in.zt", "a")
    recipe = {"rule": [{"from": "a", "steps": [{"transpose": [1, 0]}]}]}
    with pytest.raises(DigestMismatchError):
        ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe=recipe)
    assert not (tmp_path / "no.zt").exists()


def rule(**fields: Any) -> dict[str, Any]:
    return {"rule": [{key.rstrip("_"): value for key, value in fields.items()}]}


STACK = [{"stack": 0, "over": "e"}]
WRONG: dict[str, Any] = {
    "field": {"rules": []},
    "unmatched": {"unmatched": "yes"},
    "list": {"rule": "x"},
    "table": {"rule": ["x"]},
    "sizes": {"sizes": {"a": 0}},
    "none": rule(to="x"),
    "two": rule(keep="x", drop="y"),
    "keep": rule(keep="x", to="y"),
    "pattern": rule(keep=3),
    "empty": rule(keep=[]),
    "number": rule(keep=[3]),
    "captures": rule(keep="{a}{b}"),
    "close": rule(keep="{a}_{b}.c"),
    "twice": rule(keep="{a}.{a}"),
    "brace": rule(keep="{a b}"),
    "one twice": rule(from_=["s", "s"], to="t", steps=[{"concatenate": 0}]),
    "stars": rule(keep="*.*"),
    "lost": rule(from_="x.{a}", to="y"),
    "new": rule(from_="x", to="y.{a}"),
    "star": rule(from_="x*", to="y"),
    "lists": rule(from_=["x", "y"], to=["z"]),
    "others": rule(from_=["x.{a}", "y.{b}"], to="z.{a}", steps=[{"concatenate": 0}]),
    "steps": rule(from_="x", steps=3),
    "step": rule(from_="x", steps=[3]),
    "words": rule(from_="x", steps=[{"stack": 0, "split": 0}]),
    "no word": rule(from_="x", steps=[{"over": "e"}]),
    "axis": rule(from_="x", steps=[{"split": True}]),
    "axes": rule(from_="x", steps=[{"transpose": [0, 2]}]),
    "axis twice": rule(from_="x", steps=[{"transpose": [1, -1]}]),
    "far axis": rule(from_="x", steps=[{"transpose": [-3, 1]}]),
    "sides": rule(from_="x", steps=[{"rearrange": "a b"}]),
    "names": rule(from_="x", steps=[{"rearrange": "a b -> a c"}]),
    "name twice": rule(from_="x", steps=[{"rearrange": "a a -> a a"}]),
    "of stack": rule(from_="x.{e}", to="x", steps=[{"stack": 0, "over": "e", "sizes": [1]}]),
    "size": rule(from_=["x", "y"], to="z", steps=[{"concatenate": 0, "sizes": [1, "b"]}]),
    "no size": rule(from_="x", to="y", steps=[{"concatenate": 0, "sizes": [0]}]),
    "count": rule(from_=["x", "y"], to="z", steps=[{"concatenate": 0, "sizes": [1]}]),
    "parts": rule(from_="x", to="x.{e}", steps=[{"split": 0, "over": "e"}]),
    "over": rule(from_="x.{e}", to="x", steps=[{"stack": 0, "over": "f"}]),
    "cast": rule(from_="x", cast="int8"),
    "optional": rule(from_="x", optional="yes"),
    "many steps": rule(from_="x", steps=[{"transpose": [0]}] * 1000),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_recipes_are_refused_before_the_source_is_opened(case: str) -> None:
    with pytest.raises((ArgumentValueError, ArgumentTypeError)) as caught:
        ztensor.convert("no such file", "no.zt", recipe=WRONG[case])
    assert caught.value.file == "the recipe"
    if "rule" in WRONG[case] and case != "list":
        assert "rule 1: " in str(caught.value)


EXPERTS = {f"{n}.{e}": GRID for n in "ab" for e in range(3)}
PAIR = {"a": GRID, "b": GRID}


def joining(**step: Any) -> dict[str, Any]:
    return rule(from_=["a", "b"], to="c", steps=[step])


def rearranging(text: str) -> dict[str, Any]:
    return rule(from_="a", steps=[{"rearrange": text}])


STACKED = rule(from_="{n}.{e}", to="{n}", steps=STACK)
UNSTACKED = rule(from_="a", to="a.{e}", steps=[{"unstack": 0, "over": "e"}])
BESIDE = rule(from_=["a.{e}", "c.{e}"], to="z.{e}", steps=[{"concatenate": 0}])
KEPT = {"unmatched": "keep"}
MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "unmatched": (rule(keep="a.{e}"), EXPERTS, "b.0"),
    "unused": ({**KEPT, **rule(keep="c")}, EXPERTS, "'c'"),
    "missing": (STACKED, {**EXPERTS, "c.0": GRID, "c.2": GRID}, "c.1"),
    "no number": (STACKED, {**EXPERTS, "a.shared": GRID}, "object 'a.shared'"),
    "half": (STACKED, {"a.0": GRID, "a.½": GRID}, "beside numbers"),
    "padded": (STACKED, {"a.0": GRID, "a.01": GRID}, "length"),
    "two of one number": (STACKED, {"a.00": GRID, "a.0": GRID}, "'00'"),
    "padded gap": (STACKED, {"a.00": GRID, "a.02": GRID}, "a.01"),
    "gap": (STACKED, {"a.0": GRID, "a.2": GRID}, "a.1"),
    "one name": ({**KEPT, **STACKED}, {**EXPERTS, "a": GRID}, "unmatched and rule 1"),
    "alone": (BESIDE, {"a.0": GRID}, "c.0"),
    "shapes": (STACKED, {"a.0": GRID, "a.1": GRID[0]}, "rule 1: steps[0]"),
    "types": (STACKED, {"a.0": GRID, "a.1": GRID.astype("f4")}, "f32"),
    "cut": (rule(from_="a", to=["b", "c"], steps=[{"split": 1}]), {"a": GRID}, "multiple of 2"),
    "sizes": (joining(concatenate=0, sizes=[1, 2]), PAIR, "multiple of 3"),
    "huge sizes": (joining(concatenate=0, sizes=[2**20_000, 2]), PAIR, "multiple of"),
    "no sizes": (joining(concatenate=0), {"a": GRID, "b": GRID[:1]}, "expected sizes = [2, 1]"),
    "other sizes": (joining(concatenate=0, sizes=[1, 3]), PAIR, "(1, 3)"),
    "axis": (joining(concatenate=3), PAIR, "axis"),
    "axes": (rule(from_="a", steps=[{"transpose": [1, 0]}]), {"a": GRID}, "axes"),
    "lengths": (rearranging("(a b) c d -> b a c d"), {"a": GRID}, "(a b)"),
    "left": (joining(transpose=[0, 1, 2]), PAIR, "2"),
    "rank": (rearranging("a b c -> a b c" + " ()" * 40), {"a": GRID}, "axes"),
    "long": (UNSTACKED, {"a": np.zeros(70_000, "u1")}, "70000"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_named_and_nothing_written(case: str, tmp_path: Path) -> None:
    recipe, state, word = MISFITS[case]
    save_file(state, tmp_path / "in.zt")
    with pytest.raises(ArgumentValueError) as caught:
        ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe=recipe)
    assert word in str(caught.value)
    assert caught.value.file == "the recipe"
    assert not (tmp_path / "no.zt").exists()


def test_rules_in_order_and_names_without_one(tmp_path: Path) -> None:
    state = {"a.x": GRID, "a.y": GRID, "b": GRID}
    recipe = {
        "rule": [{"drop": "a.x"}, {"from": "a.{n}", "to": "c.{n}"}, {"keep": "z", "optional": True}]
    }
    assert made(recipe | {"unmatched": "keep"}, state, tmp_path).keys() == {"c.y", "b"}
    assert made(recipe | {"unmatched": "drop"}, state, tmp_path).keys() == {"c.y"}
    rows = Recipe(recipe | {"unmatched": "drop"}).plan(tmp_path / "in.zt")
    assert [(row.rule, row.sources, row.name) for row in rows] == [
        (1, ("a.x",), None),
        (2, ("a.y",), "c.y"),
        (0, ("b",), None),
    ]
    for lossy in (rule(drop="a"), rule(keep="a", cast="float16"), {"unmatched": "drop"}):
        with pytest.raises(UsageError):
            Recipe(lossy).reversed()


def test_an_unknown_name_of_a_length_is_named() -> None:
    recipe = {"sizes": {"heads": 4}, **joining(concatenate=0, sizes=["head", 2])}
    with pytest.raises(ArgumentValueError) as caught:
        Recipe(recipe)
    assert all(word in str(caught.value) for word in ("'head'", "'heads'", "[sizes]"))


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    for data in (b"rule = ", b"\xff", b"a = " + b"[" * 5000, b"rule = 3"):
        path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            Recipe.load(path)
        assert caught.value.file == str(path)
    path.write_text('\ufeffunmatched = "keep"', encoding="utf-8")
    assert Recipe.load(path).name == str(path)
    with pytest.raises(SourceError):
        Recipe.load(tmp_path / "none.toml")
    with pytest.raises(UsageError):
        ztensor.convert(path, "no.zt", reverse=True)


def test_sources_and_targets_without_objects(tmp_path: Path) -> None:
    index = tmp_path / "in.safetensors.index.json"
    index.write_text('{"metadata": {}, "weight_map": {}}')
    save_file({}, tmp_path / "in.zt")
    for source in (index, tmp_path / "in.zt"):
        ztensor.convert(source, tmp_path / "out.zt", recipe={"unmatched": "keep"})
        assert not load_file(tmp_path / "out.zt")
    assert not made({"unmatched": "drop"}, PAIR, tmp_path)


def test_a_nested_state_is_refused(tmp_path: Path) -> None:
    ztensor.save_tree({"a": {"b": GRID}}, tmp_path / "in.zt")
    with pytest.raises(UsageError):
        ztensor.convert(tmp_path / "in.zt", tmp_path / "no.zt", recipe={"unmatched": "keep"})


@pytest.mark.parametrize(
    ("pattern", "name", "captures"),
    [
        ("a.{i}.w", "a.12.w", {"i": "12"}),
        ("a.{i}.w", "a.1.2.w", None),
        ("l_{i}.w", "l_1.w", {"i": "1"}),
        ("*.{i}.w", "a.b.1.w", {"*1": "a.b", "i": "1"}),
        ("a*b*", "aXbY", {"*1": "X", "*2": "Y"}),
        ("a.w", "aXw", None),
    ],
)
def test_patterns(pattern: str, name: str, captures: dict[str, str] | None) -> None:
    parsed = Pattern(pattern)
    assert parsed.match(name) == captures
    if captures is not None:
        assert parsed.fill(captures) == name


def test_no_recipe_takes_long(tmp_path: Path) -> None:
    names = [f"layer.{n}" for n in range(5000)]
    state = {name: np.zeros(1, "u1") for name in names}
    renamed = {"from": names, "to": [f"new.{n}" for n in names]}
    new = made({"rule": [{"keep": "*.4999"}, renamed]}, state, tmp_path)
    assert new.keys() == {f"new.{n}" for n in names[:-1]} | {names[-1]}
    with pytest.raises(ArgumentValueError, match="4096"):
        Recipe({"rule": [{"keep": [f"{{a}}.{n}" for n in range(5000)]}]})
    name = ("a." * 30_000) + "b"
    assert Pattern("*.{a}.{b}.{c}.{d}.c").match(name) is None


def unstacking(to: Any, times: int = 1, **step: Any) -> dict[str, Any]:
    return {"rule": [{"from": "a", "to": to, "steps": [{"unstack": 0, **step}] * times}]}


LARGE: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "parts of parts": (unstacking(["b", "c"], 2), (3000, 3000, 0)),
    "many objects": (unstacking("b.{e}", over="e"), (50_000, 0)),
    "long names": (unstacking("b" * 50_000 + ".{e}", over="e"), (5000, 0)),
}


@pytest.mark.parametrize("case", LARGE)
def test_small_files_do_not_make_many_objects(case: str) -> None:
    """Parts of arrays without elements cost memory, and no bytes of the file."""
    recipe, shape = LARGE[case]
    with pytest.raises(LimitError) as caught:
        Recipe(recipe).plan(ztensor.numpy.save({"a": np.zeros(shape, "u1")}))
    assert caught.value.reason is ztensor.Reason.LIMIT_COST


@pytest.mark.parametrize("pattern", ["*a{x}.b", "{x}a*b", "{x}*", "*{x}"])
def test_captures_without_a_dot_between_them_are_refused(pattern: str) -> None:
    """The time of a match would be quadratic."""
    with pytest.raises(ArgumentValueError):
        Pattern(pattern)


def test_joins_of_objects_without_rows(tmp_path: Path) -> None:
    state = {f"{n}.{e}": np.ones((4 * (n == "b"), 3), "f4") for n in "ab" for e in "01"}
    steps: list[dict[str, Any]] = [{"concatenate": 0, "over": "e"}, {"transpose": [1, 0]}]
    steps += [{"concatenate": 1, "sizes": [0, 1]}]
    new = made(rule(from_=["a.{e}", "b.{e}"], to="x", steps=steps), state, tmp_path)
    assert same(new, {"x": np.ones((3, 8), "f4")})


def test_sources_are_read_once_and_a_layer_at_a_time(tmp_path: Path) -> None:
    """The experts of a layer, and q, k and v of a fused matrix in another order."""
    matrix = np.random.default_rng(0).integers(0, 255, (512, 2048), np.uint8)
    state = {f"l.{layer}.e.{e}.w": matrix + e for layer in range(8) for e in range(4)}
    state |= {f"l.{layer}.qkv": np.tile(matrix, (3, 1)) for layer in range(4)}
    recipe = {
        "rule": [
            {"from": "l.{i}.e.{e}.w", "to": "l.{i}.w", "steps": [{"transpose": [1, 0]}, *STACK]},
            {"from": "l.{i}.qkv", "to": [f"l.{{i}}.{w}" for w in "qkv"], "steps": [{"split": 0}]},
        ]
    }
    save_file(state, tmp_path / "in.zt", compression=True)
    for name in ("out.zt", "out.safetensors"):
        file = CountedFile((tmp_path / "in.zt").read_bytes())
        with traced() as memory:
            ztensor.convert(file, tmp_path / name, recipe=recipe)
            assert memory()[1] < 28 << 20
        assert file.nbytes < 1.1 * (tmp_path / "in.zt").stat().st_size
