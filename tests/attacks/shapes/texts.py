"""JSON headers and indexes that become far more than they are."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.shapes import WIDE, add, shape, widening


def header(text: str, data: bytes = b"") -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def repeated(length: int, one: str) -> str:
    return ",".join([one] * max(length // (len(one) + 1), 1))


def numbered(length: int, one: str) -> str:
    """Return entries with different names: `one` has a `%x` for a number."""
    return ",".join(one % i for i in range(max(length // (len(one) + 3), 1)))


ENTRY = '"dtype":"I8","shape":[0],"data_offsets":[0,0]'

# Values of JSON that are short and become much.
VALUES = {
    "empty arrays": "[]",
    "empty objects": "{}",
    "objects of one": '{"":0}',
    "numbers": "999",
    "floats": "1.5",
    "texts": '"ab"',
    "wide texts": '"\u20ac"',
    "escaped texts": '"\\n\\n"',
}


def _unknown(value: str) -> Callable[[int], bytes]:
    return lambda n: header('{"a":{%s,"x":[%s]}}' % (ENTRY, repeated(n, value)))


def _in_metadata(value: str) -> Callable[[int], bytes]:
    whole = '{"metadata":{"a":[%s]},"weight_map":{"a":"b"}}'
    return lambda n: (whole % repeated(n, value)).encode()


for name, value in VALUES.items():
    shape("safetensors", f"{name} in an unknown field")(_unknown(value))
    shape("index", f"{name} in the metadata")(_in_metadata(value))


@shape("safetensors")
def _different_shapes(length: int) -> bytes:
    one = '"%x":{"dtype":"I8","shape":[0,%d],"data_offsets":[0,0]}'
    parts = [one % (i, i) for i in range(max(length // 60, 1))]
    return header("{%s}" % ",".join(parts))


def _pairs(length: int, file: str) -> bytes:
    parts = [f'"{i:x}":"{file % i if "%" in file else file}"' for i in range(max(length // 14, 1))]
    return ('{"weight_map":{%s}}' % ",".join(parts)).encode()


@shape("index")
def _one_long_escaped_text_that_widens_in_the_index(length: int) -> bytes:
    text = r'{"metadata":{"a":"%s\u20ac\ud83d\ude00"},"weight_map":{"a":"b"}}' % ("a" * length)
    return text.encode()


add(
    "safetensors",
    {
        "regular tensors": lambda length: header("{%s}" % numbered(length, '"%%x":{%s}' % ENTRY)),
        "tensors with blanks": lambda length: header(
            "{ %s}" % numbered(length, '"%%x":{%s}' % ENTRY)
        ),
        "tensors with a field more": lambda length: header(
            "{%s}" % numbered(length, '"%%x":{%s,"x":[]}' % ENTRY)
        ),
        "a long shape": lambda length: header(
            '{"a":{"dtype":"I8","shape":[%s],"data_offsets":[0,0]}}' % repeated(length, "0")
        ),
        "a long shape of large numbers": lambda length: header(
            '{"a":{"dtype":"I8","shape":[0,%s],"data_offsets":[0,0]}}' % repeated(length, "1000")
        ),
        "metadata": lambda length: header('{"__metadata__":{%s}}' % numbered(length, '"%x":""')),
        "metadata with one wide character": lambda length: header(
            '{"__metadata__":{"%s":"",%s}}' % (WIDE, numbered(length, '"%x":""'))
        ),
        "one long wide text": lambda length: header(
            '{"__metadata__":{"a":"%s"}}' % (WIDE + "a" * length)
        ),
        "one long text that widens": lambda length: header(
            '{"__metadata__":{"a":"%s"}}' % widening(length)
        ),
        "one long escaped text that widens": lambda length: header(
            r'{"__metadata__":{"a":"%s\u20ac\ud83d\ude00"}}' % ("a" * length)
        ),
        "one long text of two that widens": lambda length: header(
            r'{"__metadata__":{"a":"%s"}}' % ("a" * length + r"\n" + WIDE)
        ),
        "one long wide name": lambda length: header('{"%s":{%s}}' % (widening(length), ENTRY)),
        "wide names": lambda length: header(
            "{%s}" % numbered(length, '"%s%%x":{%s}' % (WIDE + "a" * 400, ENTRY))
        ),
        "one wide name of many": lambda length: header(
            '{%s,"%s":{%s}}' % (numbered(length, '"%%x":{%s}' % ENTRY), WIDE, ENTRY)
        ),
        "one name": lambda length: header("{%s}" % repeated(length, '"a":{%s}' % ENTRY)),
        "deep arrays": lambda length: header('{"a":%s' % ("[" * length)),
        "a long number": lambda length: header(
            '{"a":{"dtype":"I8","shape":[%s],"data_offsets":[0,0]}}' % ("9" * length)
        ),
        "broken at the end": lambda length: header("{%s" % numbered(length, '"%%x":{%s}' % ENTRY)),
    },
)


add(
    "index",
    {
        "missing shards": lambda length: _pairs(length, "f%x"),
        "missing shards in folders": lambda length: _pairs(length, "%x/f"),
        "missing shards behind dots": lambda length: _pairs(length, "././f%x"),
        "one missing shard": lambda length: _pairs(length, "f"),
        "names of nothing": lambda length: (
            {"model.safetensors.index.json": _pairs(length, "s"), "s": header("{}")}
        ),
        "one long text that widens in the index": lambda length: (
            '{"metadata":{"a":"%s"},"weight_map":{"a":"b"}}' % widening(length)
        ).encode(),
        "one long wide name in the index": lambda length: (
            '{"weight_map":{"%s":"b"}}' % widening(length)
        ).encode(),
        "one long wide file in the index": lambda length: (
            '{"weight_map":{"a":"%s"}}' % widening(length)
        ).encode(),
        "wide names in the index": lambda length: (
            '{"weight_map":{%s}}' % numbered(length, f'"{WIDE}{"a" * 400}%x":"b"')
        ).encode(),
        "one wide name of many in the index": lambda length: (
            '{"weight_map":{%s,"%s":"b"}}' % (numbered(length, '"%x":"b"'), WIDE)
        ).encode(),
        "deep arrays in the index": lambda length: ('{"metadata":%s' % ("[" * length)).encode(),
        "a long number in the index": lambda length: (
            '{"metadata":{"a":%s},"weight_map":{}}' % ("9" * length)
        ).encode(),
        "a name twice": lambda length: (
            '{"weight_map":{%s}}' % repeated(length, '"a":"b"')
        ).encode(),
    },
)
