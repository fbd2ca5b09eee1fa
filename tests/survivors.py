"""Which mutants survive rightly, and why nobody can notice them: see `mutants.py`.

For each module the comparison as `ast.unparse` writes it, its two sides with it, and the reason.
Only what was seen to survive stands here.
"""

from __future__ import annotations

_SPEED = "only which of two ways is taken; both give the same, one of them sooner"
_ESTIMATE = "an estimate of memory; at the edge either number holds"
_LONG_WAY = "the value at the edge is read the long way, with the same result"

EQUAL: dict[str, dict[str, str]] = {
    "container/v1/object.py": {
        "length < 0": _LONG_WAY,
        "offset + length > frame.manifest_offset": _LONG_WAY,
    },
    "container/v1/pieces.py": {
        "_NAME + len(item) - 1 < _NAME_8": _LONG_WAY,
        "item[0] == _NAME_8": _LONG_WAY,
        "item[1] == len(item) - 2": _LONG_WAY,
        "len(pieces) <= width * count": _LONG_WAY,
    },
    "container/v1/schema.py": {
        "len(data) <= PIECES_BYTES": _SPEED,
        "pos - start > _LONG": _ESTIMATE,
    },
    "container/v2/regular.py": {
        "int(lengths.max()) <= 1024": _LONG_WAY,
    },
    "container/v2/small.py": {
        "max(stored, held) > _MOST_BYTES": _LONG_WAY,
        "number > _MOST_BYTES": _LONG_WAY,
    },
    "encoding/zstd/frames.py": {
        "end < self.length": _SPEED,
    },
    "foreign/base.py": {
        "elements.ndim < 2": _SPEED,
        "elements.strides[-1] == elements.itemsize": _SPEED,
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
        "inflater.position >= entries[-1].position + self.step": _SPEED,
        "length <= _WHOLE_BYTES": _SPEED,
        "self._taken < stored.length": "at the end nothing is left, and nothing is read",
    },
    "foreign/gguf/cursor.py": {
        "end <= have": "at the edge more is read ahead, as the next field would have it",
    },
    "foreign/gguf/metadata.py": {
        "at - begin > _BATCH_BYTES": "how many strings are decoded at once",
        "start > have": "asks for bytes that are there",
        "stop > have": "asks for bytes that are there",
    },
    "foreign/hdf5/datatype.py": {
        "end < 0": "a name never begins the message, so no end is 0",
    },
    "foreign/hdf5/heaps.py": {
        "length < 0": "no object of no bytes is a huge one",
    },
    "foreign/npy.py": {
        "end <= _USUAL_MOST": _SPEED,
        "needed > nbytes": "that they differ was asked before",
    },
    "foreign/npz/exporting.py": {
        "self.size >= zip.MOST_32": "for `_sizes` both numbers are equal at the edge",
    },
    "foreign/npz/members.py": {
        "length > len(head)": "at the edge the same head is read again",
        "skip < len(piece)": "at the edge an empty piece is added",
    },
    "foreign/npz/sparse.py": {
        "len(_COMMON) < len(members)": "beside the three nothing stands, which is asked as well",
        "names >= _COMMON": "beside the three nothing stands, which is asked as well",
    },
    "foreign/onnx/projecting.py": {
        "place < end": "leads to the general walk, as any odd node",
    },
    "foreign/pt/pickle_rows.py": {
        "call.least <= 1": _LONG_WAY,
    },
    "foreign/safetensors.py": {
        "0 <= stop": "what is looked for begins behind the first character",
        "at > length": "that they differ was asked before",
        "len(entry) > 3": "what has no field more is not deep; for what is told it is tested",
        "len(names) >= _COLUMNS_FROM": _SPEED,
        "stop < at": "where they are equal no comma follows, and the result is the same",
        "stop >= 0": "what is looked for begins behind the first character",
    },
    "foreign/zip.py": {
        "at + 4 <= len(extra)": "a field of no bytes at the end has no number",
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
    "model/dtype.py": {
        "count > _BEYOND": "at the edge either number is larger than any file",
    },
    "model/manifest.py": {
        "len(known) < len(names)": "nothing is added where all are known",
    },
    "model/showing.py": {
        "code < 256": "U+0100 is a letter, which is never escaped",
        "code < 65536": "U+10000 is a letter, which is never escaped",
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
        "2 * length > room": _ESTIMATE,
        "223 < first": "0xDF is the head of a tag",
        "budget is not None": _ESTIMATE,
        "len(words) < _WORDS": "how many short texts are kept to be shared",
        "room < 0": _ESTIMATE,
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
