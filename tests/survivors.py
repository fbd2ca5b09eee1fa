"""Which mutants survive rightly, and why nobody can notice them: see `mutants.py`.

For each module the comparison as `ast.unparse` writes it, its two sides with it, and the reason.
Only what was seen to survive stands here.
"""

from __future__ import annotations

_SPEED = "only which of two ways is taken; both give the same, one of them sooner"
_ESTIMATE = "an estimate of memory; at the edge either number holds"
_LONG_WAY = "the value at the edge is read the long way, with the same result"

EQUAL: dict[str, dict[str, str]] = {
    "container/rows.py": {
        "0 < count": "where there are no objects none is found, and all is read the long way",
        "count <= self._few + (len(data) - first_name) // _LEAST_BYTES": _LONG_WAY,
        "elements <= _MOST_ELEMENTS": _LONG_WAY,
        "elements[some.index] <= _MOST_ELEMENTS": _LONG_WAY,
        "end > stop": "the name is returned before where both are the same",
        "failed > 2 * self._few": _LONG_WAY,
        "len(word) <= MOST_CHOICE": _LONG_WAY,
    },
    "container/v1/object.py": {
        "0 <= dim": _LONG_WAY,
        "dim <= cbor.UINT64_MAX": _LONG_WAY,
        "length < 0": _LONG_WAY,
        "offset + length > frame.manifest_offset": _LONG_WAY,
        "offset < 64": _LONG_WAY,
    },
    "container/v1/pieces.py": {
        "count <= len(data)": "so many objects do not lie in so few bytes, which is noticed soon",
        "len(component) > _MOST_WORDS": _LONG_WAY,
        "len(pieces) <= width * count": "of so many objects there is always one piece more",
        "length > blobs_end": "so long a blob ends too late wherever it begins",
        "objects.find(_DIGEST + digest[0] + digest[1], start, end) > 0": (
            "no digest lies before all objects"
        ),
        "rank <= _MOST_RANK": _LONG_WAY,
        "size > _MOST_BYTES": _LONG_WAY,
    },
    "container/v1/root.py": {
        "key == 'commit'": _SPEED,
    },
    "container/v1/schema.py": {
        "len(data) <= PIECES_BYTES": _SPEED,
        "len(data) >= REGULAR_BYTES": _SPEED,
        "pairs > (len(data) - start) // 2": _LONG_WAY,
        "pos - start > _LONG": _ESTIMATE,
    },
    "container/v2/emit.py": {
        "component is None": _SPEED,
    },
    "container/v2/regular.py": {
        "depth < PLAIN_DEPTH - 2": _LONG_WAY,
        "int(lengths.max()) <= 1024": _LONG_WAY,
    },
    "container/v2/schema.py": {
        "len(self._data) < REGULAR_BYTES": _SPEED,
        "pos - start > _LONG": _ESTIMATE,
    },
    "container/v2/small.py": {
        "LEAST_OBJECTS <= count": _SPEED,
        "count <= len(data)": "so many objects do not lie in so few bytes, which is noticed soon",
        "depth < PLAIN_DEPTH - 2": _LONG_WAY,
        "elements > _MOST_BYTES": _LONG_WAY,
        "int(offsets.max()) > _MOST_BYTES": _LONG_WAY,
        "len(shape) > _MOST_RANK": _LONG_WAY,
        "max(stored, held) > _MOST_BYTES": _LONG_WAY,
        "number > _MOST_BYTES": _LONG_WAY,
        "size > 1": "so small an offset lies in the first page, as 0 does: neither is taken",
    },
    "encoding/zstd/frames.py": {
        "end < self.length": _SPEED,
    },
    "foreign/base.py": {
        "len(spans) > 1": _SPEED,
        "len(target) > 1": _SPEED,
        "steps[0] - inner > _GAP_BYTES": _SPEED,
        "whole <= _READ_BYTES": _SPEED,
    },
    "foreign/dcp/records.py": {
        "component.offset < entry.end": "a member's data lies behind its header",
        "entry.begin < component.offset": "a member's data lies behind its header",
    },
    "foreign/deflate.py": {
        "inflater.position > start": "at the edge an empty piece is added",
        "length <= _WHOLE_BYTES": _SPEED,
    },
    "foreign/hdf5/datatype.py": {
        "end < 0": "a name never begins the message, so no end is 0",
    },
    "foreign/hdf5/heaps.py": {
        "length < 0": "no object of no bytes is a huge one",
    },
    "foreign/npz/exporting.py": {
        "count >= zip.MOST_16": "at the edge both records say it",
        "max(offset, length) >= zip.MOST_32": "at the edge both records say it",
    },
    "foreign/onnx/projecting.py": {
        "place < end": "leads to the general walk, as any odd node",
    },
    "foreign/pt/pickle_rows.py": {
        "call.least <= 1": _LONG_WAY,
    },
    "layout/gguf_blocks.py": {
        "target == np.float32": _SPEED,
    },
    "layout/quantization/dequantizing.py": {
        "columns.start % count == columns.stop % count": _SPEED,
        "columns.stop % count == 0": _SPEED,
        "components['scales'].size <= _WHOLE": _SPEED,
        "height < self.group": "at the edge both are equal",
        "self.groups_of is not None": _SPEED,
    },
    "layout/quantization/unpacking.py": {
        "width > 8": "the upper half of a byte is made once more, and not used",
        "width > bits": "the upper half of a byte is made once more, and not used",
    },
    "reading/ahead.py": {
        "nbytes is None": _SPEED,
    },
    "reading/component.py": {
        "runs is None": _SPEED,
    },
    "reading/each.py": {
        "dtype is None": _SPEED,
        "len(found.shape) > self._file.limits.rank": _SPEED,
    },
    "reading/loading.py": {
        "len(table.spellings) <= _FEW_TYPES": _SPEED,
        "span > _MOST_SPREAD * int(table.lengths.sum())": _SPEED,
        "table.lengths >= OWN_BYTES": _SPEED,
    },
    "reading/recovery.py": {
        "at >= 0": "what is looked for begins behind the first byte",
    },
    "reading/row_slices.py": {
        "abs(rows.step) > 1": "no step is 0",
        "high > low": "no step is 0",
        "rows.step < 0": "no step is 0",
    },
    "reading/runs.py": {
        "groups[-1].run < 0": _SPEED,
        "len(self._tables) > 1": _SPEED,
        "len(work) > 1": _SPEED,
        "nbytes + length > _AT_ONCE_BYTES": _SPEED,
        "nbytes >= _WORTH_BYTES": _SPEED,
        "self._table_bytes > KEPT_TABLE_BYTES": _SPEED,
    },
    "reading/slices.py": {
        "whole is not None": _SPEED,
    },
    "reading/verify.py": {
        "workers <= 1": _SPEED,
    },
    "sharded/index.py": {
        "stop < 0": "the map never begins the text",
    },
    "source/appending.py": {
        "descriptor is not None": "a number that nobody holds any more is given back by itself",
    },
    "source/locking.py": {
        "descriptor >= 0": "0 is the standard input's",
    },
    "source/remote.py": {
        "len(self._blocks) * _BLOCK_BYTES > _CACHE_BYTES": _SPEED,
    },
    "source/sink.py": {
        "self._unstarted >= START_BYTES": _SPEED,
    },
    "wire/cbor/decoding.py": {
        "(1 + _WIDE) * length > room": _ESTIMATE,
        "(2 if major == 2 or whole.isascii() else 5) * len(whole) > room": _ESTIMATE,
        "0 <= start": _LONG_WAY,
        "120 < first": "a text whose length takes one byte is read before",
        "2 * length > room": _ESTIMATE,
        "223 < first": "0xDF is the head of a tag",
        "count < 0": "where there are no items this is not asked",
        "end > len(data)": _LONG_WAY,
        "first & 31 > 23": "a head without further bytes has one form only",
        "first > 159": "an open array has no count, so it is not known to be empty there",
        "first > 191": "a strict reading refuses an open map before",
        "left > _SMALL_DICT": _ESTIMATE,
        "len(words) < _WORDS": "how many short texts are kept to be shared",
        "major < 2": "byte strings and texts are read before",
        "room < 0": _ESTIMATE,
        "words is None": _SPEED,
    },
    "wire/cbor/encoding.py": {
        "0 <= argument": "0 is written before",
        "number < 24": "24 to 31 are refused before",
    },
    "wire/cbor/form.py": {
        "first < 224": "0xE0 has neither further bytes nor an open length",
        "form < last": "a key that comes twice is refused before",
    },
    "wire/json.py": {
        "cost > budget.bytes_left": _ESTIMATE,
        "stop - start > _SHORT": _ESTIMATE,
    },
    "wire/lockstep.py": {
        "largest > 27": _SPEED,
        "low + room > len(data)": _SPEED,
    },
    "writing/blob.py": {
        "algorithm is not None": _SPEED,
        "crew.count > 1": _SPEED,
        "done > self._hashed": "what is fresh lies behind",
    },
    "writing/compressing.py": {
        "crew is not None": _SPEED,
        "crew.count > 1": _SPEED,
    },
}
