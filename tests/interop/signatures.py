"""Exchange signatures with model-signing, both ways, for files and folders and each curve.

    python tests/interop/signatures.py            model-signing 1.1.1, in an environment of its own
    python tests/interop/signatures.py FOLDER     also the cases with keys of a checkout of
                                                  github.com/sampras343/model-signing-conformance

Each program verifies the signature of the other, and refuses it once a byte has changed. It ends
with status 1 where one of them does otherwise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from tests.interop.run import ROOT, environment
from tests.unit.signing.keys import private_pem, public_pem
from ztensor import ZTensorError, signing
from ztensor.numpy import save_file

PACKAGES = ("model-signing==1.1.1", "pyopenssl")  # it imports the second, and does not require it
CURVES = (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())
# Cases for an option that `verify` has not: paths to ignore that the signature does not name.
NEEDS_IGNORE = {"key-simple-go", "historical-v1.0.1-elliptic-key"}


def program() -> Path:
    """Return the command of model-signing; its environment is made with the first call."""
    folder = ROOT / ".venvs" / "model-signing"
    command = folder / "bin" / "model_signing"
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    return command


def theirs(*words: object) -> bool:
    """Return whether model-signing accepts something, or signs it."""
    call = [str(program()), *map(str, words)]
    return subprocess.run(call, env=environment(), capture_output=True, check=False).returncode == 0


def ours(path: Path, key: Path, signature: Path, **options: Any) -> bool:
    """Return whether we accept something."""
    try:
        return signing.verify(path, key, signature=signature, **options).ok
    except ZTensorError:
        return False


def keys(folder: Path, curve: ec.EllipticCurve) -> tuple[Path, Path]:
    """Write a new pair of keys."""
    key, private, public = ec.generate_private_key(curve), folder / "k.pem", folder / "k.pub"
    private.write_bytes(private_pem(key))
    public.write_bytes(public_pem(key))
    return private, public


def models(folder: Path) -> list[tuple[Path, Path]]:
    """Write models; return each with a file of it."""
    tensors = {f"w{number}": np.arange(1000.0) + number for number in range(4)}
    found = []
    for version in ("0.1.0", "1.2.0", "2.1"):
        save_file(tensors, path := folder / f"{version}.zt", version=version, compression=True)
        found.append((path, path))
    save_file(tensors, folder / "m.safetensors")
    (shards := folder / "model").mkdir()
    (shards / "a").mkdir()
    save_file(tensors, shards / "model.zt", max_shard_size=9000)
    for name in ("a.txt", "a/b.txt", "é (copy).txt", ".hidden", ".gitignore"):
        (shards / name).write_text(name)
    return [*found, (folder / "m.safetensors",) * 2, (shards, shards / "a.txt")]


def exchanged(folder: Path, curve: ec.EllipticCurve) -> list[str]:
    """Return the faults with a curve."""
    private, public = keys(folder, curve)
    wrong = []
    for path, part in models(folder):
        signature = folder / "x.sig"
        signing.sign(path, private, signature=signature, overwrite=True)
        verify = "verify", "key", path, "--signature", signature, "--public_key", public
        outcomes = {
            "theirs of ours": theirs(*verify),
            "ours of ours": ours(path, public, signature),
        }
        signature.unlink()
        theirs("sign", "key", path, "--signature", signature, "--private_key", private)
        outcomes["ours of theirs"] = ours(path, public, signature)
        part.write_bytes(part.read_bytes()[:-1] + b"!")
        outcomes["changed, ours"] = not ours(path, public, signature)
        outcomes["changed, theirs"] = not theirs(*verify)
        wrong += [f"{curve.name}, {path.name}: {what}" for what, ok in outcomes.items() if not ok]
    return wrong


def conformance(checkout: Path) -> list[str]:
    """Return the names of cases with keys that end otherwise than they say."""
    wrong, assets = [], checkout / "test" / "assets"
    for case in sorted((checkout / "test" / "test-cases" / "verify").glob("*/*")):
        config = json.loads((case / "config.json").read_text("utf-8"))
        key = assets / str(config["verify"].get("public_key"))
        if config["method"] != "key" or not key.exists():
            continue
        model = (case if config.get("model_relative_to") == "test_dir" else assets) / config[
            "model"
        ]
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "model")
            (shutil.copy if model.is_file() else shutil.copytree)(model, place)
            changes = config.get("model_modifications", {})
            for name in changes.get("delete", ()):
                (place / name).unlink()
            for name, text in {**changes.get("inject", {}), **changes.get("tamper", {})}.items():
                (place / name).write_text(text, "utf-8")
            options = {"ignore_unsigned": config["verify"].get("ignore_unsigned_files", False)}
            options["ignore_unsigned"] |= case.name in NEEDS_IGNORE
            if ours(place, key, case / "bundle.sig", **options) != (config.get("expect") != "fail"):
                wrong.append(case.name)
    return wrong


if __name__ == "__main__":
    faults = []
    for each in CURVES:
        with tempfile.TemporaryDirectory() as temporary:
            faults += exchanged(Path(temporary), each)
    faults += [fault for checkout in sys.argv[1:] for fault in conformance(Path(checkout))]
    print(*faults or ["all signatures were accepted and refused as they should be"], sep="\n")
    sys.exit(bool(faults))
