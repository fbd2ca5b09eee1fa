"""What `make docs` does beside the pages: it attaches a report, and looks at what was built.

mkdocs calls the functions `on_...` (`hooks` in mkdocs.yml). The report is that of a small model
written here. In the built pages every link must lead to a file and an anchor that are there,
nothing may be loaded from another host, and the reference must have every public name.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
REPORT = "report.html"
FOLLOWED = {"a", "area", "form"}  # addresses of other tags are loaded without a click
# Modules, and classes that are made when they are asked for, by what is on the page in their place.
SHOWN_AS = {
    "ztensor.ext.cbor": "ztensor.spec.wire.cbor",
    "ztensor.ext.locking": "ztensor.io.source.locking",
    "ztensor.ext.streams": "ztensor.spec.encoding.streams",
    "ztensor.lightning.CheckpointIO": "ztensor.lightning.TreeCheckpoints",
    "ztensor.trainer.CheckpointCallback": "ztensor.trainer.SavesSteps",
}


def small_model(path: Path) -> None:
    """Write a model of 6 layers; one matrix of layer 4 is 8 times as large as its kind."""
    import numpy as np

    from ztensor.numpy import save_file

    rng = np.random.default_rng(0)
    width = 96
    roles = {
        "attention.key.weight": (width, width),
        "attention.output.weight": (width, width),
        "attention.query.weight": (width, width),
        "attention.value.weight": (width, width),
        "mlp.down.weight": (width, 4 * width),
        "mlp.up.weight": (4 * width, width),
    }
    tensors = {"embed.weight": rng.normal(0, 0.02, (1000, width)).astype("float32")}
    for layer in range(6):
        for role, shape in roles.items():
            tensors[f"layers.{layer}.{role}"] = rng.normal(0, 0.05, shape).astype("float32")
        tensors[f"layers.{layer}.norm.weight"] = rng.normal(1, 0.01, width).astype("float32")
    tensors["layers.4.mlp.down.weight"] *= 8
    save_file(tensors, path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the report to the files of the site."""
    from mkdocs.structure.files import File

    with tempfile.TemporaryDirectory() as folder:
        small_model(Path(folder, "model.zt"))
        verb = [sys.executable, "-m", "ztensor", "report", "model.zt", "-o", REPORT, "--quiet"]
        subprocess.run(verb, cwd=folder, check=True)  # noqa: S603  # our own
        content = Path(folder, REPORT).read_text("utf-8")
    files.append(File.generated(config, REPORT, content=content))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site in which something is wrong."""
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    site.joinpath("llms.txt").write_text(list_for_readers(config), "utf-8")
    wrong = [*wrong_links(site), *missing_names(site)]
    if wrong:
        raise PluginError("\n".join(["the site is not right:", *wrong]))


def list_for_readers(config: MkDocsConfig) -> str:
    """Return `llms.txt`: each page of the navigation with its first sentence."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav or []:
        for title, pages in section.items():
            lines += [f"## {title}", ""]
            lines += [entry(path) for path in paths_of(pages) if path.endswith(".md")]
            lines.append("")
    return "\n".join(lines)


def paths_of(pages: object) -> list[str]:
    """Return the paths in a part of the navigation, in order."""
    if isinstance(pages, str):
        return [pages]
    nested = pages.values() if isinstance(pages, dict) else pages
    return [path for part in nested for path in paths_of(part)]  # type: ignore[attr-defined]


def entry(path: str) -> str:
    """Return the line of a page: its title, its address and its first sentence."""
    text = (ROOT / "docs" / path).read_text("utf-8")
    title, _, rest = text.partition("\n")
    prose = [part for part in rest.split("\n\n") if re.match(r"[\w`(\"]", part.strip())]
    sentence = re.split(r"(?<=\.)\s", " ".join(prose[0].split()))[0] if prose else ""
    sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    return f"- [{title.lstrip('# ')}]({path.removesuffix('.md')}/): {sentence}".rstrip()


class Links(HTMLParser):
    """The anchors of a page, and the addresses in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.followed: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag is called and where it leads."""
        values = {key: value for key, value in attrs if value}
        if "id" in values:
            self.anchors.add(values["id"])
        found = {
            values[key] for key in ("href", "src", "data", "poster", "action") if key in values
        }
        if tag in FOLLOWED or values.get("rel") in ("canonical", "prev", "next"):
            self.followed |= found
        else:
            self.loaded |= found

    def has(self, fragment: str) -> bool:
        """Return whether the page has the place that an address names."""
        return unquote(fragment) in self.anchors


def wrong_links(site: Path) -> list[str]:
    """Return a sentence for each link that leads nowhere, and for what another host would serve."""
    site = site.resolve()
    pages = {path: Links(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        where = path.relative_to(site).as_posix()
        wrong += [
            f"{where} loads {address}"
            for address in sorted(page.loaded)
            if urlsplit(address).netloc or urlsplit(address).scheme not in ("", "data")
        ]
        for address in sorted(page.loaded | page.followed):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            # Those of 404.html begin at the root of the host, as it is shown for any address.
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                wrong.append(f"{where} links to {address}: there is no such file")
            elif parts.fragment and target in pages and not pages[target].has(parts.fragment):
                wrong.append(f"{where} links to {address}: there is no such anchor")
    for path in sorted(site.rglob("*.css")):
        found = re.findall(
            r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", path.read_text("utf-8")
        )
        wrong += [f"{path.relative_to(site).as_posix()} loads {address}" for address in found]
    return wrong


def missing_names(site: Path) -> list[str]:
    """Return a sentence for each public name that the built reference does not have."""
    built = (site / "reference").rglob("*.html")
    anchors = set().union(*(Links(page).anchors for page in built))
    pages = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
    texts = "".join(page.read_text("utf-8") for page in pages)
    listed = re.findall(r"^::: (\S+)$", texts, re.MULTILINE)
    missing = []
    for module in listed:
        path = ROOT.joinpath("src", *module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not source.is_file():  # a class or a function
            continue
        for name in public_names(source):
            whole = f"{module}.{name}"
            places = {whole, SHOWN_AS.get(whole), f"ztensor.errors.{name}"}
            # By itself, where a module and its function have one name, or it is made when needed.
            places.update(
                one for one in listed if one.startswith(f"{module}.") and one.endswith(f".{name}")
            )
            if not places & anchors:
                missing.append(f"the reference lacks {whole}")
    return missing


def public_names(source: Path) -> list[str]:
    """Return `__all__` of a module, without importing it or the libraries it needs."""
    for node in ast.parse(source.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if not name.startswith("__")]
    return []  # a module that `ztensor.ext` has as a whole
