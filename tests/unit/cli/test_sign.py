"""`ztensor sign`, and `ztensor verify --signed-by`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import ExitCode, Run
from ztensor.numpy import save_file

pytest.importorskip("cryptography", reason="signatures need cryptography")

from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.signing.keys import private_pem, public_pem


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a file with two objects, in the working folder, with keys."""
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.arange(1000.0), "b": np.ones(3)}, "m.zt", checksum=None)
    for name in ("key", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        password = b"secret" if name == "other" else None
        Path(f"{name}.pem").write_bytes(private_pem(key, password))
        Path(f"{name}.pub").write_bytes(public_pem(key))
    ztensor.signing.sign("m.zt", "key.pem")
    return tmp_path / "m.zt"


def test_it_says_what_was_checked(run: Run, signed: Path) -> None:
    ended = run("verify", "m.zt", "--signed-by", "key.pub")
    assert ended.code == 0
    assert "checked manifest and 2 of 2 components, 1 whole file" in ended.out
    assert "signed by key SHA256:" in ended.out
    found = run("verify", "m.zt", "--signed-by", "key.pub", "--include", "a", "--json").json
    facts = found["files"][0]["signature"]
    assert found["ok"]
    assert (facts["files"], facts["components"], facts["signed"]) == (0, 1, 2)
    assert run("verify", "m.zt", "--signed-by", "key.pub", "-q").out == ""


def test_what_is_wrong(run: Run, signed: Path) -> None:
    verify = ("verify", "m.zt", "--signed-by")
    assert run(*verify, "other.pub").code == ExitCode.CORRUPT
    assert run(*verify, "key.pem").code == ExitCode.USAGE
    assert run(*verify, "missing.pub").code == ExitCode.FAILED
    assert run(*verify, "key.pub", "--signature", "none").code == ExitCode.FAILED
    data = bytearray(signed.read_bytes())
    data[200] ^= 1
    signed.write_bytes(data)
    assert run("verify", "m.zt").code == 0
    ended = run(*verify, "key.pub", "--json")
    assert ended.code == ExitCode.FAILED
    reasons = [problem["reason"] for problem in ended.json["files"][0]["problems"]]
    assert reasons == ["digest_mismatch"] * 2  # of the component, and of the file
    signed.write_bytes(data[:-1])
    assert run(*verify, "key.pub").code == ExitCode.CORRUPT


@pytest.mark.parametrize(
    "words",
    [
        ("--signature", "m.zt.sig"),
        ("--ignore-unsigned",),
        ("--signed-by", "key.pub", "--jobs", "2"),
        ("--signed-by", "key.pub", "--deep"),
        ("m.zt", "--signed-by", "key.pub", "--signature", "m.zt.sig"),
    ],
)
def test_options_that_do_not_fit(run: Run, signed: Path, words: tuple[str, ...]) -> None:
    assert run("verify", "m.zt", *words).code == ExitCode.USAGE


def test_signing(run: Run, signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run("sign", "m.zt", "--key", "key.pem")
    assert ended.code == ExitCode.USAGE
    assert "--force" in ended.err
    assert run("sign", "m.zt", "--key", "key.pem", "--update", "--json").json["kept"] == 0
    save_file({"a": np.arange(1000.0)}, "n.zt")
    assert run("sign", "n.zt", "--key", "key.pem").code == 0
    assert run("sign", "n.zt", "--key", "key.pem", "--update", "--json").json["kept"] == 1
    other = ("sign", "n.zt", "--key", "other.pem", "--force")
    assert run(*other).code == ExitCode.USAGE
    assert run(*other, "--password-env", "SIGN_PASSWORD").code == ExitCode.USAGE
    monkeypatch.setenv("SIGN_PASSWORD", "wrong")
    assert run(*other, "--password-env", "SIGN_PASSWORD").code == ExitCode.USAGE
    monkeypatch.setenv("SIGN_PASSWORD", "secret")
    assert run(*other, "--password-env", "SIGN_PASSWORD", "-o", "x.sig").code == 0
    assert run("verify", "n.zt", "--signed-by", "other.pub", "--signature", "x.sig").code == 0
    assert run("sign", "none.zt", "--key", "key.pem").code == ExitCode.FAILED
    Path("cut.zt").write_bytes(signed.read_bytes()[:-1])
    assert run("sign", "cut.zt", "--key", "key.pem").code == ExitCode.CORRUPT
    assert not Path("cut.zt.sig").exists()
