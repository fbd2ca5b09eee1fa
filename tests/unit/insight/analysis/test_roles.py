from __future__ import annotations

import pytest

from ztensor.insight.analysis.roles import (
    groups_of,
    is_optimizer_state,
    natural_key,
    parts_of,
    roles_of,
)

M = (4, 4)


def layers_of(names: list[str], shapes: list[tuple[int, ...]] | None = None) -> list[object]:
    found = roles_of(names, shapes or [M] * len(names))
    return [None if role is None else (role.name, role.layer) for role in found]


def test_the_number_of_a_layer_is_a_whole_part() -> None:
    names = ["h.0.w", "h.1.w", "h.10.w", "layer_3.w", "layer_4.w", "conv1.w", "conv2.w"]
    assert layers_of(names) == [("h.*.w", 0), ("h.*.w", 1), ("h.*.w", 10), None, None, None, None]


def test_of_several_numbers_the_first_is_the_layer() -> None:
    names = [f"layers.{i}.experts.{k}.w" for i in range(3) for k in range(8)]
    assert layers_of(names)[9] == ("layers.*.experts.1.w", 1)


def test_a_number_that_makes_no_row_of_layers_is_none() -> None:
    names = [f"encoder.0.layers.{i}.w" for i in range(4)]
    assert layers_of(names)[2] == ("encoder.0.layers.*.w", 2)


def test_shapes_have_to_agree() -> None:
    found = layers_of(["f.0.w", "f.3.w", "f.6.w"], [(3, 8), (8, 16), (8, 16)])
    assert found == [None, ("f.*.w", 3), ("f.*.w", 6)]


@pytest.mark.parametrize("name", ["", ".", "...", "a", "1", "9" * 5000, "." * 5000, "\u0661.w"])
def test_any_name_is_taken(name: str) -> None:
    assert layers_of([name, name + "x"]) == [None, None]
    assert len(parts_of(name)) <= 64
    assert isinstance(natural_key(name[:500]), tuple)


def test_names_are_sorted_as_people_count_and_parents_stay_together() -> None:
    names = ["a.b", "a-b", "a", "a.10", "a.9", "a.b.c", "a/b", "a.10.z", "a.9.z"]
    assert sorted(names, key=natural_key) == [
        "a", "a.9", "a.9.z", "a.10", "a.10.z", "a.b", "a/b", "a.b.c", "a-b",
    ]  # fmt: skip


def test_groups_are_the_first_part_that_differs() -> None:
    assert groups_of(["model.a.x", "model.a.y", "model.b"]) == ["model.a", "model.a", "model.b"]
    assert groups_of(["a", "b.c"]) == ["a", "b"]
    assert groups_of([]) == []
    assert groups_of(["only"]) == ["only"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("optimizer.state.0.exp_avg", True),
        ("state.1.exp_avg_sq", True),
        ("opt_state/0/mu/w", True),
        ("momentum_buffer", True),
        ("layers.0.SelfAttention.v.weight", False),
        ("model.2.m.0.conv.weight", False),
        ("optimizers_head.weight", False),
    ],
)
def test_optimizer_states(name: str, expected: bool) -> None:
    assert is_optimizer_state(name) is expected
