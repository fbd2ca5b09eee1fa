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
    "foreign/pt/encodings.py": {
        "geometry.span <= max(_SPAN_BYTES, _SPAN_PART * destination.nbytes)": _SPEED,
        "len(rest) >= PIECE_BYTES": "the last block comes from what is left, whole as it is",
    },
    "foreign/pt/objects.py": {
        "per_element > 1": "the last axis times one",
        "self._free_bytes < 0": "no steps are charged",
    },
    "foreign/pt/pickle_columns.py": {
        "frame >= stop": "a frame at the very end cuts nothing",
        "length < _LEAST_FRAME": _LONG_WAY,
        "part.start <= position": "the same part is read again",
        "part.start < position": "the same part is read again",
        "part.stop < len(self._machine.data)": "the last part is read again from there on",
        "position < part.stop": _LONG_WAY,
        "position < self._before": _LONG_WAY,
        "self.lanes.ends[row - 1] > len(self.data) - _TAIL_BYTES": _SPEED,
        "stop - first < _LEAST": _SPEED,
    },
    "foreign/pt/pickle_lanes.py": {
        "before == short": "a row whose beginning is guessed wrongly is read the long way",
        "cut < ends[row]": "where a row ends an instruction does",
        "len(reading.fields) < _MOST_FIELDS": "rows of one more field are columns, with its values",
        "self._at[rows] <= len(self._data)": "no run is taken that ends where the bytes do",
        "start + length < len(self._data)": "behind a text at the very end nothing follows",
        "width > 0": "only the codes of numbers come here, and each has a width",
    },
    "foreign/pt/pickle_machine.py": {
        "count < place": "that the place is the next one was asked before",
        "count <= found.most": _LONG_WAY,
        "count > 1": _LONG_WAY,
        "found.least <= count": _LONG_WAY,
        "len(self.calls) < _MOST_CALLS": "how many names are looked up once",
        "len(state) < 16": _ESTIMATE,
        "len(value) > SHORT": _ESTIMATE,
        "len(values[0]) <= SHORT": _LONG_WAY,
        "nbytes > BATCH": _ESTIMATE,
        "place < count": "that the place is the next one was asked before",
        "self.cost > BATCH": _ESTIMATE,
        "stop < 0": "a line never begins the pickle: an instruction is before it",
    },
    "foreign/pt/pickle_reader.py": {
        "cost > BATCH": _ESTIMATE,
        "count <= SHORT": _LONG_WAY,
        "machine.cost > BATCH": _ESTIMATE,
        "position < near": _LONG_WAY,
    },
    "foreign/pt/pickle_rows.py": {
        "call.least <= 1": _LONG_WAY,
        "form is None": "what rows have in common is found out again for each",
        "found is not None": "a value that is there again is made again",
        "len(part) < _LONG_BYTES": _ESTIMATE,
        "len(self._forms) >= _MOST_FORMS": "how many forms of rows are taken as a whole",
        "len(self._told) >= _MOST_TOLD": "how many values are remembered by their bytes",
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
