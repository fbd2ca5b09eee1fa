"""Signatures: signed data is read, and no other data."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import operator
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import Limits, Reason, v2
from ztensor.distributed import PartWriter, commit
from ztensor.numpy import save_file

pytest.importorskip("cryptography", reason="signatures need cryptography")

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.unit.signing.keys import private_pem, public_pem
from ztensor import signing

pytestmark = pytest.mark.wing

X = {f"w{i}": np.arange(1000, dtype=np.float32) + i for i in range(5)} | {"b": np.ones(3, bool)}
VERSIONS = [
    (version, compression) for version in ("1.2.0", "0.1.0", "2.1") for compression in (False, True)
]


KEY, OTHER = (ec.derive_private_key(number, ec.SECP256R1()) for number in (77, 78))
PRIVATE, PUBLIC = private_pem(KEY), public_pem(KEY)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give a signed file."""
    path = tmp_path / "model.zt"
    save_file(X, path)
    signing.sign(path, PRIVATE)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a signed folder of three shards and other files."""
    path = tmp_path / "model"
    (path / "sub").mkdir(parents=True)
    save_file(X, path / "model.zt", max_shard_size=9000)
    for name in ("config.json", ".hidden", "sub/é (copy).txt", "sub.txt", ".gitignore"):
        (path / name).write_text(name)
    signing.sign(path, PRIVATE)
    return path


def patched(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


# --- Right signatures -------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "compression"), VERSIONS)
@pytest.mark.parametrize("checksum", [True, "sha256", None])
def test_files_of_all_versions(
    tmp_path: Path, version: str, compression: bool, checksum: Any
) -> None:
    path = tmp_path / "m.zt"
    save_file(X, path, version=version, compression=compression, checksum=checksum)
    assert signing.sign(path, PRIVATE).signed == len(X)
    report = signing.verify(path, PUBLIC)
    assert (report.ok, report.files, report.components, report.signed) == (True, 1, 6, 6)
    assert report.contents.ok
    for mapped in (True, False):
        with signing.open(path, PUBLIC, mmap=mapped) as reader:
            for name, array in X.items():
                np.testing.assert_array_equal(reader[name], array)
                np.testing.assert_array_equal(reader.read_numpy(name, copy=True), array)
            assert reader.key == report.key
            again = pickle.loads(pickle.dumps(reader))
            assert again.key == report.key
            assert again["w1"][0] == 1
            again.close()


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_files_of_other_formats_curves_and_passwords(
    tmp_path: Path, curve: ec.EllipticCurve
) -> None:
    path, key = tmp_path / "m.npz", ec.generate_private_key(curve)
    np.savez(path, x=X["w0"], y=X["w1"])
    (tmp_path / "k.pem").write_bytes(private_pem(key, b"secret"))
    with pytest.raises(ztensor.UsageError):
        signing.sign(path, tmp_path / "k.pem")
    signing.sign(path, tmp_path / "k.pem", password="secret")  # noqa: S106
    report = signing.verify(path, public_pem(key))
    assert (report.ok, report.files, report.signed) == (True, 1, 0)
    with pytest.raises(ztensor.UnsupportedError):
        signing.open(path, public_pem(key))


def test_a_folder(folder: Path) -> None:
    report = signing.verify(folder, PUBLIC)
    assert (report.ok, report.files, report.components, report.signed) == (True, 8, 6, 6)
    with signing.open(folder, PUBLIC) as reader:
        assert sorted(reader) == sorted(X)
        np.testing.assert_array_equal(reader["w3"], X["w3"])
    with signing.open(folder / "model-00001-of-00003.zt", PUBLIC) as reader:
        assert 0 < len(reader) < len(X)


def test_the_statement_is_what_other_programs_read(folder: Path) -> None:
    bundle = json.loads((folder / "model.sig").read_bytes())
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    resources = statement["predicate"]["resources"]
    names = [resource["name"] for resource in resources]
    assert names == sorted(names)
    assert {"config.json", ".hidden", "sub/é (copy).txt"} < set(names)
    assert not {".gitignore", "model.sig"} & set(names)
    assert statement["predicate"].keys() == {"resources", "serialization"}  # the schema has no more
    allowed = {"name", "algorithm", "digest", "annotations"}
    assert all(resource.keys() <= allowed for resource in resources)


def test_update_hashes_what_changed(folder: Path) -> None:
    shard = folder / "model-00002-of-00003.zt"
    with ztensor.Editor(shard) as editor:
        editor.write("more", np.zeros(3))
    with pytest.raises(ztensor.UsageError):
        signing.sign(folder, PRIVATE)
    report = signing.sign(folder, PRIVATE, update=True)
    assert (report.kept, report.files, report.signed) == (2, 6, 7)
    assert signing.verify(folder, PUBLIC).ok
    with pytest.raises(signing.SignatureError):
        signing.sign(folder, private_pem(OTHER), update=True)


@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_objects_of_all_layouts(tmp_path: Path, version: str) -> None:
    path = tmp_path / "m.zt"
    objects = {
        "csr": ztensor.Tensor.csr([1.0, 2.0], [3, 0], [0, 1, 2], (2, 4)),
        "int4": ztensor.Tensor.quantize(X["w1"].reshape(10, 100), bits=4, group_size=50),
        "empty": np.empty((0, 3)),
        "scalar": np.array(3.0),
        "big": np.zeros((300, 1000), np.float32),
    }
    for compression in (False, 3, "planes"):
        save_file(objects, path, compression=compression, version=version)
        count = signing.sign(path, PRIVATE, overwrite=True).signed
        with signing.open(path, PUBLIC) as reader, ztensor.open(path) as plain:
            assert ztensor.diff(reader, plain).ok
            assert (reader.verify().checked, reader.verify().outcome) == (count, "ok")
            assert reader.get_slice("big")[7:9, 5].tolist() == [0, 0]


def test_a_root_with_shards_of_its_own(tmp_path: Path) -> None:
    """The digests of components in further files of 2.x are signed with the root."""
    save_file(X, tmp_path / "base.zt", version="2.1", checksum=None)
    with v2.Writer(tmp_path / "root.zt", canonical=False) as writer:
        writer.add_shard("b", tmp_path / "base.zt")
        writer.link("b")
    signing.sign(tmp_path / "root.zt", PRIVATE)
    shard = tmp_path / "root-b.zt"
    shutil.copy(tmp_path / "base.zt", shard)
    with signing.open(tmp_path / "root.zt", PUBLIC) as reader:
        assert reader["w1"][0] == 1
    patched(shard, X["w1"].tobytes(), X["w0"].tobytes())
    with signing.open(tmp_path / "root.zt", PUBLIC) as reader:
        with pytest.raises(ztensor.DigestMismatchError):
            reader["w1"]
        assert reader["w2"][0] == 2


def test_a_checkpoint_of_many_processes_is_checked_whole(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    with PartWriter(tmp_path / "step", processes=1) as part:
        part.add("w", X["w1"])
        commit(tmp_path / "step", [part.finish()])
    folder = tmp_path / "step"
    with pytest.raises(ztensor.UsageError):
        signing.sign(folder / "checkpoint.zt", PRIVATE)
    signing.sign(folder, PRIVATE)
    for path in (folder, folder / "checkpoint.zt"):
        assert signing.verify(path, PUBLIC).ok
        with pytest.raises(ztensor.UnsupportedError):
            signing.open(path, PUBLIC)
    save_file(X, tmp_path / "checkpoint.zt")  # a file like any other
    assert signing.sign(tmp_path / "checkpoint.zt", PRIVATE).signed == len(X)
    signing.open(tmp_path / "checkpoint.zt", PUBLIC).close()


def test_a_url(model: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    for name in ("model.zt", "model.zt.sig"):
        store.put(name, model.with_name(name).read_bytes())
    place = ztensor.Remote("s3://bucket/model.zt", store)
    assert signing.verify(place, PUBLIC).ok
    with signing.open(place, PUBLIC) as reader:
        np.testing.assert_array_equal(reader["w2"], X["w2"])
    with signing.open("s3://bucket/model.zt", PUBLIC, storage=store) as reader:
        assert reader["w2"][0] == 2
    _resaved(model)
    store.put("model.zt", model.read_bytes())
    with pytest.raises(signing.SignatureError):
        signing.open(place, PUBLIC)
    with pytest.raises(ztensor.UsageError):
        signing.sign("s3://bucket/model.zt", PRIVATE)


# --- Files that were changed ------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("version", "compression"), VERSIONS)
def test_changed_data_is_never_returned(
    tmp_path: Path, version: str, compression: bool, mapped: bool
) -> None:
    """Also where the file has no digests, or right ones for the changed bytes."""
    path = tmp_path / "m.zt"
    save_file(X, path, version=version, compression=compression, checksum=None)
    signing.sign(path, PRIVATE)
    with ztensor.open(path) as plain:
        place = plain.location("w2")
    data = bytearray(path.read_bytes())
    data[place.offset + place.length // 2] ^= 1
    path.write_bytes(data)
    reads: list[Callable[[Any], object]] = [
        lambda r: r["w2"], lambda r: dict(r.items()), lambda r: r.read("w2"),
        lambda r: r.read_numpy("w2", copy=True), lambda r: r.read_numpy(["w1", "w2"]),
        lambda r: r.get_slice("w2")[3:5], lambda r: r.read_into("w2", np.empty(1000, np.float32)),
        lambda r: b"".join(r.decoded_chunks("w2")), ztensor.stats, ztensor.content_hash,
        lambda r: ztensor.convert(r, tmp_path / "new.safetensors"),
    ]  # fmt: skip
    with signing.open(path, PUBLIC, mmap=mapped) as reader:
        for read in reads:
            with pytest.raises(ztensor.FormatError):
                read(reader)
        np.testing.assert_array_equal(reader["w1"], X["w1"])
    report = signing.verify(path, PUBLIC)
    assert not report.ok
    assert "w2" in {problem.object_name for problem in report.contents.problems}
    assert signing.verify(path, PUBLIC, names=["w1"]).ok


def _resaved(path: Path) -> None:
    save_file({**X, "w0": X["w0"] + 1}, path)


FAULTS: dict[str, Callable[[Path], object]] = {
    "other content": _resaved,
    "a manifest with other names": lambda path: patched(path, b"w0", b"wX"),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 40),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(64)),
    "another end": lambda path: path.write_bytes(path.read_bytes()[:-8] + b"ZTEN1001"),
    "empty": lambda path: path.write_bytes(b""),
    "another format": lambda path: path.write_bytes(b"\x08" + bytes(7) + b"{}      "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_another_file_is_refused_when_it_is_opened(model: Path, fault: str) -> None:
    FAULTS[fault](model)
    with pytest.raises(ztensor.FormatError):
        signing.open(model, PUBLIC)
    with pytest.raises(ztensor.FormatError):
        signing.verify(model, PUBLIC)


def test_bytes_between_components_are_signed(model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[9] ^= 1  # padding
    model.write_bytes(data)
    with signing.open(model, PUBLIC) as reader:
        assert reader["w0"][1] == 1
    problems = signing.verify(model, PUBLIC).contents.problems
    assert [problem.reason for problem in problems] == [Reason.DIGEST_MISMATCH]


class Changing(io.BytesIO):
    """A file that another one replaces after some reads."""

    def __init__(self, first: bytes, then: bytes, reads: int) -> None:
        super().__init__(first)
        self.then, self.left = then, reads

    def read(self, size: int | None = -1, /) -> bytes:
        if self.left == 0:
            place = self.tell()
            self.seek(0)
            self.write(self.then)
            self.seek(place)
        self.left -= 1
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        return len(data)


def test_what_was_checked_is_what_is_used(model: Path) -> None:
    """A file that changes while it is opened is refused, or read as it was signed."""
    right, signature = model.read_bytes(), f"{model}.sig"
    save_file({**X, "w0": X["w0"] + 1, "w1": X["w1"].view(np.int32)}, model)
    wrong = model.read_bytes()
    assert len(right) == len(wrong)
    outcomes = set()
    for first, then in ((right, wrong), (wrong, right)):
        for reads in range(12):
            try:
                with signing.open(
                    Changing(first, then, reads), PUBLIC, signature=signature
                ) as file:
                    for name, array in X.items():
                        found = file[name]
                        assert found.dtype == array.dtype
                        np.testing.assert_array_equal(found, array)
                outcomes.add("read")
            except ztensor.ZTensorError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: (f / "extra.bin").write_text("x"), Reason.SHARD_FILE),
        (lambda f: (f / "sub" / "extra").write_text("x"), Reason.SHARD_FILE),
        (lambda f: (f / "config.json").unlink(), Reason.SOURCE_NOT_FOUND),
        (lambda f: (f / "config.json").write_text("other"), Reason.DIGEST_MISMATCH),
        (lambda f: (f / "link").symlink_to("config.json"), Reason.SOURCE_NOT_REGULAR),
        (lambda f: (f / "folder").symlink_to("sub"), Reason.SOURCE_NOT_REGULAR),
    ],
)
def test_a_folder_that_changed(
    folder: Path, change: Callable[[Path], object], reason: Reason
) -> None:
    change(folder)
    report = signing.verify(folder, PUBLIC)
    assert [problem.reason for problem in report.contents.problems] == [reason]
    assert signing.verify(folder, PUBLIC, ignore_unsigned=True).ok == (reason is Reason.SHARD_FILE)


def test_files_of_a_folder_are_checked_one_by_one(folder: Path) -> None:
    """They may be several models, and each may be damaged or missing."""
    shutil.copy(folder / "model-00001-of-00003.zt", folder / "copy.zt")
    signing.sign(folder, PRIVATE, overwrite=True)
    report = signing.verify(folder, PUBLIC)
    assert (report.ok, report.components) == (True, report.signed)
    with pytest.raises(ztensor.FormatError):
        signing.open(folder, PUBLIC)
    os.remove(folder / "model-00001-of-00003.zt")
    _resaved(folder / "model-00002-of-00003.zt")
    os.truncate(folder / "model-00003-of-00003.zt", 90)
    problems = signing.verify(folder, PUBLIC).contents.problems
    assert {problem.path[0] for problem in problems} == {
        f"model-0000{number}-of-00003.zt" for number in (1, 2, 3)
    }


def test_what_is_not_signed(folder: Path, tmp_path: Path) -> None:
    os.remove(folder / "model.sig")
    (folder / "link").symlink_to("config.json")
    with pytest.raises(ztensor.UsageError):
        signing.sign(folder, PRIVATE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ztensor.UsageError):
        signing.sign(tmp_path / "empty", PRIVATE)
    with pytest.raises(ztensor.SourceError):
        signing.sign(tmp_path / "missing", PRIVATE)
    shard = folder / "model-00002-of-00003.zt"
    data = bytearray(shard.read_bytes())
    data[80] ^= 1
    shard.write_bytes(data)
    os.remove(folder / "link")
    with pytest.raises(ztensor.FormatError):
        signing.sign(folder, PRIVATE)
    assert not (folder / "model.sig").exists()
    assert signing.sign(shutil.copy(folder / "sub.txt", tmp_path), PRIVATE).files == 1


# --- Wrong signatures -------------------------------------------------------------------------


def resigned(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    """Return a change of the statement of a signature, which the same key signs again."""

    def changed(bundle: Any) -> None:
        envelope, kind = bundle["dsseEnvelope"], b"application/vnd.in-toto+json"
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        payload = json.dumps(statement).encode()
        text = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
        sig = KEY.sign(text, ec.ECDSA(hashes.SHA256()))
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"][0]["sig"] = base64.b64encode(sig).decode()

    return bundled(changed)


def bundled(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    """Return a change of a signature's JSON."""

    def changed(data: bytes) -> bytes:
        bundle = json.loads(data)
        change(bundle)
        return json.dumps(bundle).encode()

    return changed


def at(*place: Any, **fields: Any) -> Callable[[Any], object]:
    """Return a change of the fields at a place of JSON."""
    return lambda value: functools.reduce(operator.getitem, place, value).update(fields)


def _twice(statement: Any) -> None:
    statement["predicate"]["resources"] *= 2
    digest = statement["predicate"]["resources"][0]["digest"]
    whole = hashlib.sha256(bytes.fromhex(digest) * 2).hexdigest()
    statement["subject"][0]["digest"]["sha256"] = whole


RESOURCE = "predicate", "resources", 0
NOTES = *RESOURCE, "annotations", "ztensor"
HOW = "predicate", "serialization"
# A key may sign anything: another program's statement is refused as well.
STATEMENTS: dict[str, Callable[[Any], object]] = {
    "another statement": at(_type="https://in-toto.io/Statement/v0.1"),
    "another predicate": at(predicateType="https://slsa.dev/provenance/v1"),
    "no predicate": lambda s: s.pop("predicate"),
    "no subject": at(subject=[]),
    "two subjects": lambda s: s.update(subject=s["subject"] * 2),
    "a subject of other resources": at("subject", 0, "digest", sha256="0" * 64),
    "no resources": at("predicate", resources=[]),
    "a list": at("predicate", resources=[[]]),
    "duplicate resources": _twice,
    "a path that leads out": at(*RESOURCE, name="../model.zt"),
    "an absolute path": at(*RESOURCE, name="/etc/passwd"),
    "half a character": at(*RESOURCE, name="\ud800"),
    "an empty name": at(*RESOURCE, name=""),
    "another name": at(*RESOURCE, name="other.zt"),
    "a number": at(*RESOURCE, name=3),
    "an unknown algorithm": at(*RESOURCE, algorithm="md5"),
    "a short digest": at(*RESOURCE, digest="00"),
    "an upper-case digest": at(*RESOURCE, digest="A" * 64),
    "another method": at(*HOW, method="shards", shard_size=1000),
    "another hash": at(*HOW, hash_type="blake3"),
    "paths that are numbers": at(*HOW, ignore_paths=[1]),
    "links that are text": at(*HOW, allow_symlinks="no"),
    "another container": at(*NOTES, container="2"),
    "another size": at(*NOTES, size=1),
    "no manifest": at(*NOTES, manifest=None),
    "too few digests": at(*NOTES, components=base64.b64encode(bytes(64)).decode()),
    "digests that are not base64": at(*NOTES, components="!" * 256),
    "no digests": at(*NOTES, components=None),
}
ENVELOPE, MATERIAL = ("dsseEnvelope",), "verificationMaterial"
BUNDLES: dict[str, Callable[[Any], object]] = {
    "media type": at(mediaType="application/json"),
    "no key": lambda bundle: bundle[MATERIAL].clear(),
    "a certificate": lambda bundle: bundle.update({MATERIAL: {"certificate": {"rawBytes": ""}}}),
    "another hint": at(MATERIAL, "publicKey", hint="0" * 64),
    "a hint that is a number": at(MATERIAL, "publicKey", hint=7),
    "no envelope": lambda bundle: bundle.pop("dsseEnvelope"),
    "payload type": at(*ENVELOPE, payloadType="text/plain"),
    "another payload": at(*ENVELOPE, payload=base64.b64encode(b"{}").decode()),
    "no base64": at(*ENVELOPE, payload="*"),
    "base64 with a line end": lambda bundle: bundle["dsseEnvelope"].update(
        payload=bundle["dsseEnvelope"]["payload"] + "\n"
    ),
    "no signature": at(*ENVELOPE, signatures=[]),
    "two signatures": lambda bundle: bundle["dsseEnvelope"]["signatures"].append({"sig": ""}),
    "an empty signature": at(*ENVELOPE, signatures=[{"sig": ""}]),
    "no DER": at(*ENVELOPE, signatures=[{"sig": "AAAA"}]),
}
BYTES = [
    b"", b"{", b"[]", b"null", b"\xff\xfe{}", b'{"mediaType": 1, "mediaType": 1}',
    b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000,
]  # fmt: skip
SIGNATURES: dict[str, Callable[[bytes], bytes]] = {
    **{name: resigned(change) for name, change in STATEMENTS.items()},
    **{name: bundled(change) for name, change in BUNDLES.items()},
    **{str(data[:12]): lambda _, data=data: data for data in BYTES},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_wrong_signature_is_refused(model: Path, name: str) -> None:
    path = model.with_name("model.zt.sig")
    path.write_bytes(SIGNATURES[name](path.read_bytes()))
    for function in (signing.open, signing.verify):
        with pytest.raises((ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError)):
            function(model, PUBLIC)


def test_damaged_signatures(model: Path) -> None:
    """Any bytes give the signed tensors, or an error of ours."""
    path, rng = model.with_name("model.zt.sig"), random.Random(0)
    right = path.read_bytes()
    refused = []
    for _ in range(300):
        data = bytearray(right)
        for _ in range(rng.choice((1, 1, 3))):
            place = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del data[place : place + rng.randrange(1, 40)]
            else:
                data[place:place] = data[place : place + 20]
        path.write_bytes(data)
        try:
            with signing.open(model, PUBLIC) as reader:
                np.testing.assert_array_equal(reader["w3"], X["w3"])
        except ztensor.ZTensorError as error:
            refused.append(error.reason)
    assert len(refused) > 200
    assert Reason.UNFORESEEN not in refused


def test_older_bundles_have_no_hint(model: Path) -> None:
    path = model.with_name("model.zt.sig")
    bundle = json.loads(path.read_bytes())
    bundle["verificationMaterial"] = {"publicKey": {"rawBytes": "AAAA"}}
    del bundle["dsseEnvelope"]["signatures"][0]["keyid"]
    path.write_text(json.dumps(bundle))
    assert signing.verify(model, PUBLIC).ok


def test_a_signature_of_another_file(model: Path, folder: Path) -> None:
    other = model.with_name("other.zt")
    save_file({**X, "w0": X["w1"]}, other)
    for path, signature in ((other, f"{model}.sig"), (folder, f"{model}.sig"),
                            (model, folder / "model.sig")):  # fmt: skip
        with pytest.raises(signing.SignatureError):
            signing.open(path, PUBLIC, signature=signature)


def test_keys(model: Path, tmp_path: Path) -> None:
    with pytest.raises(signing.SignatureError):
        signing.open(model, public_pem(OTHER))
    with pytest.raises(signing.SignatureError):
        signing.open(model, public_pem(ec.generate_private_key(ec.SECP384R1())))
    others = ec.generate_private_key(ec.SECP256K1()), rsa.generate_private_key(65537, 2048)
    malformed = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    for pem in (PRIVATE, b"", malformed, bytes(99), bytes(1 << 20), *map(public_pem, others)):
        with pytest.raises(ztensor.UsageError):
            signing.open(model, pem)
    with pytest.raises(ztensor.UsageError):
        signing.sign(model, PUBLIC, overwrite=True)
    with pytest.raises(ztensor.SourceError):
        signing.open(model, tmp_path / "missing.pem")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
@pytest.mark.parametrize("name", [b"a\\b", b"sub/a\\b", b"\xff"])
def test_names_that_no_signature_may_have(folder: Path, name: bytes) -> None:
    try:
        with open(os.path.join(os.fsencode(folder), name), "wb"):
            pass
    except OSError:
        pytest.skip("the file system has no such names")
    with pytest.raises(ztensor.UsageError):
        signing.sign(folder, PRIVATE, overwrite=True)
    assert not signing.verify(folder, PUBLIC).ok


def test_arguments(model: Path) -> None:
    with pytest.raises(ztensor.UsageError):
        signing.open(model, PUBLIC, verify=False)
    with pytest.raises(TypeError):
        signing.open(model, PUBLIC, verfy=True)  # type: ignore[call-arg]
    with pytest.raises(ztensor.LimitError):
        signing.open(model, PUBLIC, limits=Limits(index_bytes=100))
    with pytest.raises(ztensor.ObjectNotFoundError):
        signing.verify(model, PUBLIC, names=["none"])
    with pytest.raises(TypeError):
        signing.sign(model, PRIVATE, overwrite=True, progress=3)  # type: ignore[arg-type]
    with pytest.raises(ztensor.UsageError):
        signing.open(model.read_bytes(), PUBLIC)
    with signing.open(model.read_bytes(), PUBLIC, signature=f"{model}.sig") as reader:
        assert reader["w0"][1] == 1
    seen: list[tuple[int, int]] = []
    signing.verify(model, PUBLIC, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (model.stat().st_size,) * 2


@pytest.mark.parametrize("name", ["model.zt", "private.pem", "other.bin"])
def test_only_a_signature_is_replaced_by_one(model: Path, name: str) -> None:
    target = model.with_name(name)
    if target != model:
        target.write_bytes(PRIVATE)
    before = target.read_bytes()
    with pytest.raises(ztensor.UsageError):
        signing.sign(model, PRIVATE, signature=target, overwrite=True)
    assert target.read_bytes() == before
    signing.sign(model, PRIVATE, overwrite=True)


def test_no_message_shows_a_key_or_a_file(model: Path) -> None:
    text: Any = PRIVATE.decode()
    with pytest.raises(TypeError) as caught:
        signing.sign(model, text, overwrite=True)
    assert "BEGIN" not in str(caught.value)
    with pytest.raises(TypeError) as caught:
        signing.open(model.read_bytes(), PUBLIC)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_damaged_file_is_not_signed(model: Path, length: int) -> None:
    model.write_bytes(bytes(length))
    with pytest.raises(ztensor.FormatError):
        signing.sign(model, PRIVATE, overwrite=True)
