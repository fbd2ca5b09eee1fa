"""Who is measured, each in an environment of its own: `.venvs/bench-<name>`, made with pip."""

from __future__ import annotations

import compileall
import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venvs"


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A library, or one way of using it.

    Attributes:
        name: how it is asked for.
        title: how it is shown.
        module: its file in `benchmarks/peers`.
        requirements: what pip installs; empty where the environment of the harness does.
        is_serious: fast enough to compare with in every round; the others take part in some.
        is_large: only measured when asked for by name or by `--torch`.
        is_ours: this checkout.
        reads: the peer whose file it reads; it stores none of its own.
        home: the peer whose environment it shares.
    """

    name: str
    title: str
    module: str
    requirements: tuple[str, ...] = ()
    is_serious: bool = True
    is_large: bool = False
    is_ours: bool = False
    reads: str = ""
    home: str = ""


_TORCH, _H5PY = "torch==2.13.0", "h5py==3.16.0"
_UNDER_OURS = ("numpy", "ml_dtypes", "zstandard", "crc32c")
_ALL = (
    Peer("ours", "ours", "ours", is_ours=True),
    Peer("ours-unchecked", "ours, no digests", "ours_unchecked", is_ours=True),
    Peer(
        "safetensors", "safetensors 0.8.0", "safetensors_numpy",
        ("safetensors==0.8.0", "numpy", "ml_dtypes"),
    ),
    Peer("ztensor-1", "ztensor 1.2.3", "ztensor_1", ("ztensor==1.2.3", "numpy", "ml_dtypes")),
    Peer("ztensor-2", "ztensor 2.1.2", "ztensor_2", ("ztensor==2.1.2", "numpy"), is_serious=False),
    Peer("npz", "npz", "npz", ("numpy",), is_serious=False),
    Peer("h5py", "h5py 3.16.0", "hdf5", (_H5PY, "numpy"), is_serious=False),
    Peer("gguf", "gguf 0.19.0", "gguf_numpy", ("gguf==0.19.0", "numpy"), is_serious=False),
    Peer(
        "torch", "torch 2.13.0", "pytorch", (_TORCH, "numpy"), is_serious=False, is_large=True,
    ),
    Peer(
        "ours-torch", "ours, as torch", "ours_torch",
        (_TORCH, *_UNDER_OURS), is_large=True, is_ours=True,
    ),
    Peer(
        "safetensors-torch", "safetensors, as torch", "safetensors_torch",
        (_TORCH, "safetensors==0.8.0", "numpy", "ml_dtypes"), is_large=True,
    ),
)  # fmt: skip

# Files of other libraries, read by themselves and by us: measured with --foreign.
_READING = (
    Peer("npz-deflated", "npz, deflated", "npz_deflated", ("numpy",), home="npz"),
    Peer("h5py-deflated", "h5py 3.16.0, deflated", "hdf5_deflated", (_H5PY, "numpy"), home="h5py"),
    Peer("h5py-lzf", "h5py 3.16.0, lzf", "hdf5_lzf", (_H5PY, "numpy"), home="h5py"),
    *(
        Peer(f"ours-{reads}", "ours", "ours_reading", is_ours=True, reads=reads)
        for reads in ("safetensors", "npz", "npz-deflated", "gguf")
    ),
    *(
        Peer(
            f"ours-{reads}", "ours", "ours_reading", (_H5PY, *_UNDER_OURS), is_ours=True,
            reads=reads, home="ours-h5py",
        )
        for reads in ("h5py", "h5py-deflated", "h5py-lzf")
    ),
    Peer("ours-ztensor-2", "ours", "ours_2", is_ours=True, reads="ztensor-2"),
    Peer("ours-pt", "ours, as NumPy", "ours_reading", is_large=True, is_ours=True, reads="torch"),
    *(
        Peer(
            f"ours-torch-{reads}", "ours, as torch", "ours_reading_torch",
            (_TORCH, *_UNDER_OURS), is_large=True, is_ours=True, reads=reads, home="ours-torch",
        )
        for reads in ("torch", "safetensors-torch")
    ),
)  # fmt: skip

# Another checkout of ours, measured in the same run with `--before`.
BEFORE = Peer("ours-before", "ours, before", "ours", is_ours=True)

# What we stand on, or the peers do: at the versions of the harness, for a fair race.
_OURS = set(_UNDER_OURS)

PEERS = {peer.name: peer for peer in _ALL}
EVERYONE = {**PEERS, **{peer.name: peer for peer in (*_READING, BEFORE)}}


class CannotInstall(Exception):
    """pip could not make a peer's environment; the message is its last word."""


def pinned(requirements: tuple[str, ...]) -> list[str]:
    """Return the requirements, those of `_OURS` at the versions installed here."""
    return [
        f"{one}=={importlib.metadata.version(one)}" if one in _OURS else one for one in requirements
    ]


def make_environment(peer: Peer) -> Path:
    """Return the Python of a peer's environment; makes it where it is missing or outdated.

    Raises:
        CannotInstall: pip, or the venv module, failed.
    """
    if not peer.requirements:
        return Path(sys.executable)
    folder = ENVIRONMENTS / f"bench-{peer.home or peer.name}"
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = "\n".join([sys.version, *pinned(peer.requirements)])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    _call([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "--quiet", "--retries", "5", "install"]
    _call([*pip, *pinned(peer.requirements)])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _call(command: list[str]) -> None:
    environment = clean_environment() | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise CannotInstall(errors[-1].removeprefix("ERROR: "))


def clean_environment() -> dict[str, str]:
    """Return this process' environment without what would lead Python to other packages."""
    removed = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {key: value for key, value in os.environ.items() if key not in removed}


def copy_checkout(folder: Path, root: Path = ROOT) -> None:
    """Copy the package of a checkout there, so that a file edited meanwhile is not half measured.

    It is compiled, as pip compiles what it installs: else the source is at every import, where the
    environment forbids Python to write bytecode.
    """
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "src" / "ztensor", folder / "ztensor", ignore=leave)
    compileall.compile_dir(folder, quiet=1)


def server_environment(peer: Peer, checkout: Path) -> dict[str, str]:
    """Return a server's environment variables; ours takes the copy, whatever is installed."""
    environment = clean_environment()
    if peer.is_ours:
        environment["PYTHONPATH"] = str(checkout)
    return environment
