"""The site of the docs: what `make docs` looks for is found, and the reference has every module."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import ztensor
from ztensor.insight.analysis.examining import examine

ROOT = Path(__file__).parents[2]
# Public, though `ztensor` does not complete to them.
BESIDE = {"conformance", "diffusers", "peft", "transformers", "v2"}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hook", ROOT / "docs" / "site_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_the_page() -> set[str]:
    pages = (ROOT / "docs" / "reference" / "python").glob("*.md")
    texts = "".join(page.read_text("utf-8") for page in pages)
    return set(re.findall(r"^::: (\S+)$", texts, re.MULTILINE))


def test_the_reference_has_every_public_module() -> None:
    modules = {name for name in dir(ztensor) if name not in ztensor.__all__} | BESIDE
    modules = {name for name in modules if not name.startswith("_")}
    assert len(modules) > 15
    modules -= {"flax", "divided"}  # other names of modules, as sentences of the page say
    assert {f"ztensor.{name}" for name in modules} <= on_the_page()
    assert {"ztensor", "ztensor.io.edit"} <= on_the_page()


def test_every_name_of_a_built_reference_is_looked_for(hook: ModuleType, tmp_path: Path) -> None:
    """A page with all names but one: that one is missed, whichever it is."""
    whole = [
        f"{module}.{name}" for module in sorted(on_the_page()) for name in names_of(hook, module)
    ]
    assert "ztensor.Reader" in whole
    assert "ztensor.torch.StorageWriter" in whole
    page = tmp_path / "reference" / "index.html"
    page.parent.mkdir()
    page.write_text("".join(f'<h3 id="{name}">x</h3>' for name in whole), "utf-8")
    assert hook.missing_names(tmp_path) == []
    page.write_text(
        page.read_text("utf-8").replace('"ztensor.torch.load_tree"', '"other"'), "utf-8"
    )
    assert hook.missing_names(tmp_path) == ["the reference lacks ztensor.torch.load_tree"]


def names_of(hook: ModuleType, module: str) -> list[str]:
    path = ROOT.joinpath("src", *module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: list[str] = hook.public_names(source) if source.is_file() else []
    return names


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('<a href="../b/">b</a><a href="../b/#there">b</a><a href="#here">a</a>', None),
        ('<a href="https://example.org/">elsewhere</a>', None),
        ('<a href="../c/">c</a>', "a/index.html links to ../c/: there is no such file"),
        ('<a href="../b/#away">b</a>', "a/index.html links to ../b/#away: there is no such anchor"),
        ('<a href="#away">a</a>', "a/index.html links to #away: there is no such anchor"),
        ('<img src="../no.png">', "a/index.html links to ../no.png: there is no such file"),
        ('<img src="//example.org/i.png">', "a/index.html loads //example.org/i.png"),
        ('<script src="https://example.org/a.js"></script>', "a/index.html loads https://example.org/a.js"),
        ('<link rel="stylesheet" href="https://example.org/f">', "a/index.html loads https://example.org/f"),
        ('<iframe src="http://example.org/"></iframe>', "a/index.html loads http://example.org/"),
    ],
)  # fmt: skip
def test_wrong_links_are_found(
    hook: ModuleType, tmp_path: Path, body: str, sentence: str | None
) -> None:
    for name, text in {"a": f'<h1 id="here">a</h1>{body}', "b": '<h1 id="there">b</h1>'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(text, "utf-8")
    assert hook.wrong_links(tmp_path) == ([] if sentence is None else [sentence])


def test_styles_that_load_from_another_host_are_found(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@import '//example.org/x.css'; b { src: url(https://example.org/f.woff2) }"
        " i { background: url(data:image/png;base64,AA) url(near.png) }",
        "utf-8",
    )
    assert hook.wrong_links(tmp_path) == [
        "a.css loads //example.org/x.css",
        "a.css loads https://example.org/f.woff2",
    ]


def test_the_attached_report_has_one_finding(hook: ModuleType, tmp_path: Path) -> None:
    hook.small_model(tmp_path / "model.zt")
    (finding,) = examine(tmp_path / "model.zt").findings
    assert finding.rule == "layer"


def test_every_picture_of_a_model_is_made_by_the_command() -> None:
    page = (ROOT / "docs" / "guides" / "insight.md").read_text("utf-8")
    command = (ROOT / "docs" / "make_insight.py").read_text("utf-8")
    pictures = set(re.findall(r"\]\((insight-\w+\.png)\)", page))
    assert pictures == {path.name for path in (ROOT / "docs" / "guides").glob("insight-*.png")}
    assert pictures == set(re.findall(r'"(insight-\w+\.png)"', command))
