"""Make the PyTorch files of this corpus: `python -m tests.corpus.foreign.make_pt`.

Every byte is fixed. The files to refuse are assembled here, instruction by instruction, and need no
library; none of their pickles may ever be loaded with Python's `pickle`. The files to accept are
written by torch (2.13), which has to be installed for that; the tests do without.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.corpus.foreign.writing import as_json, by_name, to_refuse, write
from ztensor.formats.pt.projecting import LEGACY_VERSION, MAGIC

SIX = np.arange(6, dtype="<f4").tobytes()
HUGE = 1 << 62


# --- Instructions of protocol 2 -------------------------------------------------------------


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes((len(data),)) + data


def named(dotted: str) -> bytes:
    """Return the instruction for a name in a module."""
    module, _, name = dotted.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def group(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def numbers(values: tuple[int, ...]) -> bytes:
    return group(*map(number, values))


def call(dotted: str, *parts: bytes) -> bytes:
    return named(dotted) + group(*parts) + b"R"


def mapping(**items: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def storage(key: str = "0", kind: str = "torch.FloatStorage", count: int = 6) -> bytes:
    saved_id = group(text("storage"), named(kind), text(key), text("cpu"), number(count))
    return saved_id + b"Q"


HOOKS = call("collections.OrderedDict")


def tensor(
    size: tuple[int, ...] = (2, 3),
    stride: tuple[int, ...] = (3, 1),
    offset: int = 0,
    of: bytes | None = None,
) -> bytes:
    parts = of or storage(), number(offset), numbers(size), numbers(stride), b"\x89", HOOKS
    return call("torch._utils._rebuild_tensor_v2", *parts)


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


# --- Files ----------------------------------------------------------------------------------


def archive(
    body: bytes,
    storages: dict[str, bytes] | None = None,
    *,
    method: int = zipfile.ZIP_STORED,
    others: Mapping[str, bytes] | None = None,
) -> bytes:
    members = {"data.pkl": pickled(body), "version": b"3\n"}
    members |= {f"data/{k}": v for k, v in ({"0": SIX} if storages is None else storages).items()}
    members |= others or {}
    return zipped({f"archive/{name}": data for name, data in members.items()}, method)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as file:
        for name, data in members.items():
            file.writestr(zipfile.ZipInfo(name), data, method)
    return target.getvalue()


def legacy(
    body: bytes, storages: dict[str, tuple[int, bytes]] | None = None, *, keys: bytes | None = None
) -> bytes:
    """Return a file as torch wrote them before 1.6."""
    storages = {"0": (6, SIX)} if storages is None else storages
    if keys is None:
        keys = b"](" + b"".join(map(text, storages)) + b"e"
    chain = number(MAGIC), number(LEGACY_VERSION), b"}"
    return b"".join(map(pickled, (*chain, body, keys))) + b"".join(
        struct.pack("<q", count) + data for count, data in storages.values()
    )


def big_endian() -> bytes:
    parts = storage("1", "torch.ComplexFloatStorage", 2)
    typed = call(
        "torch._utils._rebuild_tensor_v3",
        storage("2", "torch.storage.UntypedStorage", 4),
        number(0),
        numbers((2,)),
        numbers((1,)),
        b"\x89",
        HOOKS,
        named("torch.uint16"),
    )
    body = mapping(
        plain=tensor(),
        turned=tensor((3, 2), (1, 3)),
        complex=tensor((2,), (1,), of=parts),
        typed=typed,
    )
    data = {
        "0": np.arange(6, dtype=">f4").tobytes(),
        "1": np.array([1 + 2j, 3 - 4j], ">c8").tobytes(),
        "2": np.array([1, 513], ">u2").tobytes(),
    }
    return archive(body, data, others={"byteorder": b"big"})


def many_times(value: bytes, again: bytes, times: int) -> bytes:
    """Return a value, and instructions that put it into others over and over, by the memo."""
    return value + b"q\0" + (again + b"q\0") * times


def overlapping() -> bytes:
    """Return an archive in which one storage is inside another."""
    body = mapping(a=tensor(), b=tensor(of=storage("1")))
    plain = archive(body, {"0": SIX, "1": SIX})
    begin, end = plain.index(b"archive/data/1") - 30, plain.index(b"PK\1\2")
    data = bytearray(archive(body, {"0": plain[begin:end], "1": SIX}))
    inner = data.index(b"archive/data/1") - 30
    struct.pack_into("<I", data, data.rindex(b"archive/data/1") - 4, inner)
    return bytes(data)


def hostile() -> dict[str, tuple[bytes, str]]:
    """Return the files to refuse by name, each with the reason."""
    system = call("os.system", text("echo this must never be printed"))
    itself = b"]q\0h\0a"
    good = archive(tensor())
    deflated = zipped({"archive/data.pkl": pickled(b"N" * (36 << 20))}, zipfile.ZIP_DEFLATED)
    cut = pickled(tensor())[:-20]
    reasons = {
        "pickle_call": {
            "system": archive(system),
            "system_legacy": legacy(system),
            "system_plain_pickle": pickled(system),
            "system_first": pickled(system)[:-1] + legacy(tensor())[2:],
            "eval_protocol_0": archive(b"cbuiltins\neval\n(V1+1\ntR"),
            "eval_instance": archive(b"(V1+1\nibuiltins\neval\n"),
            "eval_object": archive(b"(cbuiltins\neval\nV1+1\no"),
            "eval_stack_global": archive(
                text("builtins") + text("eval") + b"\x93" + group(text("1")) + b"R"
            ),
            "new_object": archive(named("subprocess.Popen") + group(text("ls")) + b"\x81"),
            "new_object_names": archive(
                named("collections.OrderedDict") + b")" + mapping(a=b"N") + b"\x92"
            ),
            "getattr": archive(call("builtins.getattr", named("os.path"), text("join"))),
            "build_name": archive(named("os.environ") + mapping(a=b"N") + b"b"),
            "load_from_bytes": archive(call("torch.storage._load_from_bytes", b"C\0")),
            "module": archive(named("torch.nn.modules.linear.Linear") + b")\x81"),
            "subclass": archive(
                call(
                    "torch._tensor._rebuild_from_type_v2",
                    named("torch._utils._rebuild_tensor_v2"),
                    named("os.PathLike"),
                    b")",
                    b"}",
                )
            ),
            "from_type_calls": archive(
                call(
                    "torch._tensor._rebuild_from_type_v2",
                    named("os.system"),
                    named("torch.Tensor"),
                    group(text("ls")),
                    b"}",
                )
            ),
            "reconstruct": archive(
                call("numpy.core.multiarray._reconstruct", named("os.system"), b")", b"N")
            ),
            "extension_code": archive(b"\x82\1"),
            "out_of_band": archive(b"\x97"),
            "torchscript": archive(
                named("__torch__.M") + b")\x81", others={"constants.pkl": pickled(b")")}
            ),
            "legacy_module": legacy(
                group(text("module"), named("a.Module"), text("a.py"), text("import os"))
                + b"Q"
                + b")\x81"
            ),
        },
        "limit_depth": {
            "itself": archive(itself),
            "dict_of_itself": archive(b"}q\0" + text("a") + b"h\0s"),
        },
        "limit_cost": {
            "laughs": archive(many_times(b"]", b"0](h\0h\0e", 40)),
            "laughs_flat": archive(many_times(b"]", b"0](" + b"h\0" * 40 + b"e", 20)),
            "laughs_text": archive(text("a" * 64_000) + b"q\x000](" + b"h\0" * 2_000 + b"e"),
            "laughs_calls": archive(
                b"](" + b"N" * 4000 + b"eq\0cbuiltins\nset\nq\1" + b"h\1h\0\x85R0" * 4000 + b"N"
            ),
            "deflated_bomb": deflated,
        },
        "truncated": {
            "long_huge": archive(b"\x8b\xff\xff\xff\x7f"),
            "text_huge": archive(b"X\xff\xff\xff\xff"),
            "text_huge_64": archive(b"\x8d" + b"\xff" * 8),
            "frame_huge": archive(b"\x95" + b"\xff" * 7 + b"\x7fN"),
            "pickle_cut": zipped({"archive/data.pkl": cut, "archive/data/0": SIX}),
            "pickle_empty": zipped({"archive/data.pkl": b"", "archive/a/data.pkl": b""}),
            "directory_cut": good[:-30],
            "legacy_cut": legacy(tensor())[:-1],
            "legacy_huge": legacy(tensor(of=storage(count=HUGE)), {"0": (HUGE, SIX)}),
        },
        "encoding_malformed": {
            "long_negative": archive(b"\x8b\xff\xff\xff\xff"),
            "text_no_utf8": archive(b"X\1\0\0\0\xff"),
            "digits": archive(b"I" + b"9" * 5000 + b"\n"),
            "memo_missing": archive(b"h\7"),
            "stack_empty": archive(b"0"),
            "two_values": archive(b"NN"),
            "mark_left": archive(b"(N"),
            "mark_missing": archive(b"Nt"),
            "unknown_instruction": archive(b"\xff"),
            "append_to_number": archive(number(1) + b"Na"),
            "odd_items": archive(b"}(Nu"),
            "protocol": archive(b"\x80\x09N"),
        },
        "field_type": {
            "pid_text": archive(text("storage") + b"Q"),
            "size_text": archive(tensor().replace(number(2), text("2"))),
            "size_flag": archive(tensor().replace(number(2), b"\x88")),
            "rank_huge": archive(tensor((1,) * 500, (1,) * 500)),
            "no_storage": archive(tensor(of=text("storage"))),
        },
        "field_value": {
            "pid_module": archive(group(text("module"), *[b"N"] * 4) + b"Q"),
            "pid_negative": archive(tensor(of=storage(count=-1))),
            "size_negative": archive(tensor((-2, -3))),
            "size_longer": archive(tensor((1 << 90, 1))),
            "stride_count": archive(tensor((2, 3), (1,))),
            "stride_negative": archive(tensor((2, 3), (-3, 1), 3)),
            "offset_negative": archive(tensor(offset=-1)),
            "arguments": archive(call("torch._utils._rebuild_tensor_v2", b"N")),
            "byte_order": archive(tensor(), others={"byteorder": b"middle"}),
            "member_moved": good.replace(b"archive/data/0", b"archive/data/9", 1),
            "legacy_keys_missing": legacy(tensor(), keys=b"]"),
            "legacy_keys_twice": legacy(tensor(), keys=b"](" + text("0") * 2 + b"e"),
            "legacy_keys_unknown": legacy(tensor(), keys=b"](" + text("1") + b"e"),
        },
        "unknown_dtype": {
            "pid_class": archive(tensor(of=storage(kind="os.FloatStorage"))),
        },
        "out_of_bounds": {
            "pid_huge": archive(tensor(of=storage(count=HUGE))),
            "storage_short": archive(tensor(), {"0": SIX[:-1]}),
            "size_beyond": archive(tensor((2, 4), (4, 1))),
            "size_huge": archive(tensor((HUGE, HUGE))),
            "stride_huge": archive(tensor((2, 3), (HUGE, 1))),
            "offset_beyond": archive(tensor(offset=1)),
            "overlapping": overlapping(),
            "legacy_part": legacy(
                tensor(
                    of=storage()[:-2] + group(text("9"), number(4), number(3)) + b"tQ",
                    size=(3,),
                    stride=(1,),
                )
            ),
        },
        "component_missing": {
            "storage_missing": archive(tensor(of=storage("7"))),
            "storage_path": archive(tensor(of=storage("../../../etc/passwd"))),
        },
        "duplicate_name": {
            "names_collide": archive(
                b"}(" + text("a.b") + tensor() + text("a") + mapping(b=tensor()) + b"u"
            ),
            "keys_collide": archive(b"}(" + text("1") + b"N" + number(1) + b"Nu"),
        },
        "unknown_layout": {
            "state_tensor": archive(
                call(
                    "torch._utils._rebuild_parameter_with_state",
                    tensor(),
                    b"\x88",
                    HOOKS,
                    mapping(twin=tensor()),
                )
            ),
            "two_pickles": zipped({"a/data.pkl": b"N.", "b/data.pkl": b"N."}),
            "pickle_only": pickled(mapping(a=number(1)) + b"0" + text("hello")),
        },
        "unknown_version": {
            "legacy_version": legacy(tensor()).replace(number(LEGACY_VERSION), number(1002)),
            "tar": b"sys_info".ljust(257, b"\0") + b"ustar\0" + bytes(249),
        },
        "size_mismatch": {
            "legacy_count": legacy(tensor(), {"0": (7, SIX)}),
        },
    }
    return by_name(reasons)


# --- What torch writes ----------------------------------------------------------------------


def accepted() -> dict[str, bytes]:
    """Return the files to read by name; needs torch."""
    import torch

    def saved(value: Any, **options: Any) -> bytes:
        target = io.BytesIO()
        torch.save(value, target, **options)
        return target.getvalue()

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    whole = torch.arange(24.0)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "note": "small",
    }
    views = {
        "whole": whole,
        "rows": whole.reshape(4, 6)[1:3],
        "turned": whole.reshape(4, 6).T,
        "every_other": whole[3:20:2],
        "expanded": whole[:3].expand(2, 3),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "tiny": torch.tensor([1.0, -0.5]).to(torch.float8_e4m3fn),
        "wide": torch.tensor([1, 65535]).to(torch.uint16),
        "flags": torch.tensor([True, False]),
        "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "scalar": torch.tensor(7),
        "nothing": torch.empty(0, 3),
    }
    # The keys of this format are addresses: one storage, named anew.
    old = saved(
        {"whole": whole, "turned": whole.reshape(4, 6).T}, _use_new_zipfile_serialization=False
    )
    (key,) = set(re.findall(rb"X.\0\0\0([0-9]{8,})", old))
    old = old.replace(key, b"1".zfill(len(key)))
    return {
        "checkpoint.pt": saved(checkpoint),
        "views.pt": saved(views),
        "legacy.pt": old,
        "big_endian.pt": big_endian(),
    }


def described(array: Any) -> dict[str, Any]:
    """Return an array as JSON can hold it."""
    return {"shape": list(array.shape), "dtype": array.dtype.name, "hex": array.tobytes().hex()}


def expected_of(data: bytes) -> dict[str, Any]:
    """Return the content as torch reads it, for JSON; tensors by their dotted names."""
    import torch

    found: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            plain = value.detach().resolve_conj().resolve_neg().contiguous()
            raw = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0)
            found[path] = {
                "shape": list(value.shape),
                "dtype": str(value.dtype).removeprefix("torch."),
                "hex": raw.tobytes().hex(),
            }
        elif isinstance(value, (dict, list)):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value):
                walk(child, f"{path}.{key}" if path else str(key))

    walk(torch.load(io.BytesIO(data)), "")
    return found


def main() -> None:
    files = accepted()
    expected = {name: expected_of(data) for name, data in files.items()}
    # torch does not swap elements of its newer types
    expected["big_endian.pt"]["typed"]["hex"] = np.array([1, 513], "<u2").tobytes().hex()
    made = {Path("accept/pt") / name: data for name, data in files.items()}
    made[Path("accept/pt/expected.json")] = as_json(expected, is_sorted=False)
    write(made | to_refuse("pt", "pt", hostile()))


if __name__ == "__main__":
    main()
