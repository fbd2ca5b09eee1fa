"""Both type checkers over users' code, as users run them: with the frameworks and without.

`tests/typing/` is read as a stranger's project that has the package installed, so what they say
of the package itself is left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.extent import IS_FULL

ROOT = Path(__file__).parents[2]
CODE = ROOT / "tests" / "typing"
# What a plain installation has beside the package.
PLAIN = ["numpy", "ml_dtypes"]
FILES = {"api.py": None, "user_code.py": None, "user_torch.py": "torch", "user_jax.py": "jax"}


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


# Parts of libraries whose types nothing of ours has: to mypy they are `Any`, but in the full form.
UNREAD = (
    "torch._decomp", "torch._dynamo", "torch._export", "torch._functorch", "torch._inductor",
    "torch._higher_order_ops", "torch._meta_registrations", "torch._prims", "torch._prims_common",
    "torch._refs", "torch._subclasses", "torch._torch_docs", "torch._weights_only_unpickler",
    "torch.ao", "torch.backends", "torch.cuda", "torch.distributed", "torch.distributions",
    "torch.export", "torch.func", "torch.fx", "torch.jit", "torch.masked", "torch.onnx",
    "torch.package", "torch.testing", "torch.utils",
    "jax._src.dlpack", "jax._src.export", "jax._src.pallas", "jax._src.scipy", "jax.experimental",
    "jaxlib.mlir", "scipy.linalg", "scipy.optimize", "scipy.signal", "scipy.special",
    "scipy.stats",
    "IPython", "dask", "distributed", "fsspec", "h5py", "numpy.testing", "obstore", "onnx",
    "optax", "pandas", "prompt_toolkit", "sympy", "tornado",
)  # fmt: skip

# In one process: the second run of mypy reads what the first one left of NumPy and of ours.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHECKERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(not is_installed(name), reason=f"{name} is not installed"),
    )
    for name in ("mypy", "basedpyright")
]


def place_in(environment: Path, what: str) -> Path:
    """Return where an environment has its packages, or its programs."""
    base = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path(what, "venv", base))


def python_of(environment: Path) -> Path:
    return place_in(environment, "scripts") / Path(sys.executable).name


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment without any framework."""
    environment = tmp_path_factory.mktemp("plain")
    venv.create(environment, symlinks=os.name == "posix", with_pip=False)
    packages = place_in(environment, "purelib")
    for name in PLAIN:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        (packages / name).symlink_to(Path(found.origin).parent)
    (packages / "ztensor").symlink_to(ROOT / "src" / "ztensor")
    return environment


def run(command: list[str], folder: Path, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


def complaints(checker: str, files: list[Path], folder: Path, plain: Path | None) -> list[str]:
    """Return what a checker finds wrong in files: "file:line code".

    Args:
        checker: which.
        files: the files.
        folder: where its settings go.
        plain: the environment; None for the one the tests run in.
    """
    if checker == "mypy":
        # Kept from run to run, as torch is large.
        cache = ROOT / ".mypy_cache" / "typing"
        settings = "[mypy]\nstrict = true\nfollow_imports = silent\n"
        if not IS_FULL:
            unread = ",".join(f"{name}.*" for name in UNREAD)
            settings += f"[mypy-{unread}]\nfollow_imports = skip\n"
        (folder / "mypy.ini").write_text(settings, "utf-8")
        command = ["mypy", "--config-file", "mypy.ini", "-O", "json", "--cache-dir", str(cache)]
        if plain is None:
            text = run([*command, *map(str, files)], folder, MYPYPATH=str(ROOT / "src"))
        else:
            command += ["--python-executable", str(python_of(plain))]
            text = run([*command, *map(str, files)], folder, MYPYPATH="")
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [
            f"{Path(one['file']).name}:{one['line']} {one['code']}"
            for one in found
            if one["severity"] == "error" and folder / one["file"] in files
        ]
    configuration: dict[str, object] = {
        "include": [str(file) for file in files],
        "typeCheckingMode": "standard",
        "reportUnusedExpression": False,
    }
    python = sys.executable if plain is None else str(python_of(plain))
    if plain is None:
        configuration["extraPaths"] = [str(ROOT / "src")]
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration), "utf-8")
    text = run(["basedpyright", "-p", str(folder), "--outputjson", "--pythonpath", python], folder)
    report = json.loads(text)
    assert report["summary"]["filesAnalyzed"] == len(files), report
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1} {one.get('rule')}"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


# Each line is a mistake that a checker must find: what it says with mypy, and with pyright.
MISTAKES = {
    'zn.load_file("m.zt")["w"].too()': ("union-attr", "reportAttributeAccessIssue"),
    'zn.load_file("m.zt", dtype="f4")': ("call-arg", "reportCallIssue"),
    'ztensor.opne("m.zt")': ("attr-defined", "reportAttributeAccessIssue"),
    'ztensor.numpy.load("m.zt")': ("arg-type", "reportArgumentType"),
    "zn.load_file(5)": ("arg-type", "reportArgumentType"),
    'ztensor.open("m.zt").reed("w")': ("attr-defined", "reportAttributeAccessIssue"),
    'ztensor.open("m.zt")["w"].dequantise()': ("union-attr", "reportAttributeAccessIssue"),
    'ztensor.safe_open("m.zt", "np").get_tensor("w").to("cpu")': (
        "union-attr",
        "reportAttributeAccessIssue",
    ),
    'ztensor.safe_open("m.zt", 5)': ("call-overload", "reportArgumentType"),
    'ztensor.open("m.zt").get_slice("w")[object()]': ("call-overload", "reportArgumentType"),
    "ztensor.stats(5)": ("arg-type", "reportArgumentType"),
    'ztensor.edit.replace_tensor("m.zt", "w", [1], atomik=True)': ("call-arg", "reportCallIssue"),
    'zn.save_file({}, "m.zt", checksm=None)': ("call-arg", "reportCallIssue"),
    'zn.save_file({}, "m.zt", version=2)': ("arg-type", "reportArgumentType"),
    "zn.save({}, durable=True)": ("call-arg", "reportCallIssue"),
    'ztensor.open("m.zt", limits=3)': ("arg-type", "reportArgumentType"),
    'with ztensor.Writer("m.zt") as w: w.finnish()': (
        "attr-defined",
        "reportAttributeAccessIssue",
    ),
}
OF_TORCH = {
    'zt.load_file("m.zt")["w"].too("cuda")': ("union-attr", "reportAttributeAccessIssue"),
    'zt.load_file("m.zt")["w"] @ "x"': ("operator", "reportOperatorIssue"),
    'ztensor.open("m.zt").read_torch("w").astype("f4")': (
        "attr-defined",
        "reportAttributeAccessIssue",
    ),
    'zt.save_model({"w": 1}, "m.zt")': ("arg-type", "reportArgumentType"),
}


OF_JAX = {
    'zj.load_file("m.zt")["w"].too()': ("union-attr", "reportAttributeAccessIssue"),
    'zj.load_file("m.zt", sharding=5)': ("arg-type", "reportArgumentType"),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_users_code_is_right_and_mistakes_are_found(checker: str, tmp_path: Path) -> None:
    """Where everything is installed: in one go, as a checker reads all of torch first."""
    files = [CODE / name for name, needs in FILES.items() if needs is None or is_installed(needs)]
    lines = {"import ztensor": None, "import ztensor.numpy as zn": None, **MISTAKES}
    if is_installed("torch"):
        lines |= {"import ztensor.torch as zt": None, **OF_TORCH}
    if is_installed("jax"):
        lines |= {"import ztensor.jax as zj": None, **OF_JAX}
    code = tmp_path / "mistakes.py"
    code.write_text("\n".join(lines) + "\n", "utf-8")
    found = dict(one.split(" ") for one in complaints(checker, [*files, code], tmp_path, None))
    expected = {
        f"mistakes.py:{number}": codes[checker == "basedpyright"]
        for number, codes in enumerate(lines.values(), 1)
        if codes is not None
    }
    assert found == expected


@pytest.mark.parametrize("checker", CHECKERS)
def test_users_code_is_right_without_frameworks(checker: str, tmp_path: Path, plain: Path) -> None:
    files = [CODE / name for name, needs in FILES.items() if needs is None]
    assert complaints(checker, files, tmp_path, plain) == []
