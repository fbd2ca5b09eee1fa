"""JSON headers and indexes that become far more than they are."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.shapes import WIDE, shape, widening


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
    shape("safetensors", f"{name} in a field nobody knows")(_unknown(value))
    shape("index", f"{name} in the metadata")(_in_metadata(value))


@shape("safetensors")
def _regular_tensors(length: int) -> bytes:
    return header("{%s}" % numbered(length, '"%%x":{%s}' % ENTRY))


@shape("safetensors")
def _tensors_with_blanks(length: int) -> bytes:
    return header("{ %s}" % numbered(length, '"%%x":{%s}' % ENTRY))


@shape("safetensors")
def _tensors_with_a_field_more(length: int) -> bytes:
    return header("{%s}" % numbered(length, '"%%x":{%s,"x":[]}' % ENTRY))


@shape("safetensors")
def _different_shapes(length: int) -> bytes:
    one = '"%x":{"dtype":"I8","shape":[0,%d],"data_offsets":[0,0]}'
    parts = [one % (i, i) for i in range(max(length // 60, 1))]
    return header("{%s}" % ",".join(parts))


@shape("safetensors")
def _a_long_shape(length: int) -> bytes:
    return header('{"a":{"dtype":"I8","shape":[%s],"data_offsets":[0,0]}}' % repeated(length, "0"))


@shape("safetensors")
def _a_long_shape_of_large_numbers(length: int) -> bytes:
    return header(
        '{"a":{"dtype":"I8","shape":[0,%s],"data_offsets":[0,0]}}' % repeated(length, "1000")
    )


@shape("safetensors")
def _metadata(length: int) -> bytes:
    return header('{"__metadata__":{%s}}' % numbered(length, '"%x":""'))


@shape("safetensors")
def _metadata_with_one_wide_character(length: int) -> bytes:
    return header('{"__metadata__":{"%s":"",%s}}' % (WIDE, numbered(length, '"%x":""')))


@shape("safetensors")
def _one_long_wide_text(length: int) -> bytes:
    return header('{"__metadata__":{"a":"%s"}}' % (WIDE + "a" * length))


@shape("safetensors")
def _one_long_text_that_widens(length: int) -> bytes:
    return header('{"__metadata__":{"a":"%s"}}' % widening(length))


@shape("safetensors")
def _one_long_escaped_text_that_widens(length: int) -> bytes:
    return header(r'{"__metadata__":{"a":"%s\u20ac\ud83d\ude00"}}' % ("a" * length))


@shape("safetensors")
def _one_long_text_of_two_that_widens(length: int) -> bytes:
    return header(r'{"__metadata__":{"a":"%s"}}' % ("a" * length + r"\n" + WIDE))


@shape("safetensors")
def _one_long_wide_name(length: int) -> bytes:
    return header('{"%s":{%s}}' % (widening(length), ENTRY))


@shape("safetensors")
def _wide_names(length: int) -> bytes:
    return header("{%s}" % numbered(length, '"%s%%x":{%s}' % (WIDE + "a" * 400, ENTRY)))


@shape("safetensors")
def _one_wide_name_of_many(length: int) -> bytes:
    return header('{%s,"%s":{%s}}' % (numbered(length, '"%%x":{%s}' % ENTRY), WIDE, ENTRY))


@shape("safetensors")
def _one_name(length: int) -> bytes:
    return header("{%s}" % repeated(length, '"a":{%s}' % ENTRY))


@shape("safetensors")
def _deep_arrays(length: int) -> bytes:
    return header('{"a":%s' % ("[" * length))


@shape("safetensors")
def _a_long_number(length: int) -> bytes:
    return header('{"a":{"dtype":"I8","shape":[%s],"data_offsets":[0,0]}}' % ("9" * length))


@shape("safetensors")
def _broken_at_the_end(length: int) -> bytes:
    return header("{%s" % numbered(length, '"%%x":{%s}' % ENTRY))


def _pairs(length: int, file: str) -> bytes:
    parts = [f'"{i:x}":"{file % i if "%" in file else file}"' for i in range(max(length // 14, 1))]
    return ('{"weight_map":{%s}}' % ",".join(parts)).encode()


@shape("index")
def _missing_shards(length: int) -> bytes:
    return _pairs(length, "f%x")


@shape("index")
def _missing_shards_in_folders(length: int) -> bytes:
    return _pairs(length, "%x/f")


@shape("index")
def _missing_shards_behind_dots(length: int) -> bytes:
    return _pairs(length, "././f%x")


@shape("index")
def _one_missing_shard(length: int) -> bytes:
    return _pairs(length, "f")


@shape("index")
def _names_of_nothing(length: int) -> dict[str, bytes]:
    return {"model.safetensors.index.json": _pairs(length, "s"), "s": header("{}")}


@shape("index")
def _one_long_text_that_widens_in_the_index(length: int) -> bytes:
    return ('{"metadata":{"a":"%s"},"weight_map":{"a":"b"}}' % widening(length)).encode()


@shape("index")
def _one_long_escaped_text_that_widens_in_the_index(length: int) -> bytes:
    text = r'{"metadata":{"a":"%s\u20ac\ud83d\ude00"},"weight_map":{"a":"b"}}' % ("a" * length)
    return text.encode()


@shape("index")
def _one_long_wide_name_in_the_index(length: int) -> bytes:
    return ('{"weight_map":{"%s":"b"}}' % widening(length)).encode()


@shape("index")
def _one_long_wide_file_in_the_index(length: int) -> bytes:
    return ('{"weight_map":{"a":"%s"}}' % widening(length)).encode()


@shape("index")
def _wide_names_in_the_index(length: int) -> bytes:
    return ('{"weight_map":{%s}}' % numbered(length, f'"{WIDE}{"a" * 400}%x":"b"')).encode()


@shape("index")
def _one_wide_name_of_many_in_the_index(length: int) -> bytes:
    return ('{"weight_map":{%s,"%s":"b"}}' % (numbered(length, '"%x":"b"'), WIDE)).encode()


@shape("index")
def _deep_arrays_in_the_index(length: int) -> bytes:
    return ('{"metadata":%s' % ("[" * length)).encode()


@shape("index")
def _a_long_number_in_the_index(length: int) -> bytes:
    return ('{"metadata":{"a":%s},"weight_map":{}}' % ("9" * length)).encode()


@shape("index")
def _a_name_twice(length: int) -> bytes:
    return ('{"weight_map":{%s}}' % repeated(length, '"a":"b"')).encode()
