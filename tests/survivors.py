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
        "len(self._under_way) < _MOST_UNDER_WAY": "how many wait for room",
        "self._held + nbytes <= _MOST_BYTES": _ESTIMATE,
        "stream.waiting < _MOST_OF_FIRST_BYTES": _ESTIMATE,
    },
    "reading/caching.py": {
        "start > last + _GAP_BYTES": _SPEED,
    },
    "reading/component.py": {
        "len(jobs) > 1": _SPEED,
    },
    "reading/decoding.py": {
        "decoded[run] - decoded[first] >= _JOB_BYTES": _SPEED,
    },
    "reading/each.py": {
        "len(found.shape) > self._file.limits.rank": _LONG_WAY,
        "size < OWN_BYTES": _ESTIMATE,
        "workers > 1": _SPEED,
    },
    "reading/listing.py": {
        "one.encoding != 'raw'": "how much is read ahead of who asks",
        "frame.manifest_length > remembering.MOST_BYTES": _SPEED,
        "start >= 0": _SPEED,
    },
    "reading/loading.py": {
        "2 * int(rows.table.lengths.sum()) < file.source.size": _SPEED,
        "check == OTHER_CHECK": "a digest of an unknown kind is looked at once more, for nothing",
        "count < _LEAST_FOR_RUNS": _SPEED,
        "len(table) > 1": _SPEED,
        "len(table.spellings) <= _FEW_TYPES": _SPEED,
        "len(tensor_object.shape) <= most_rank": _LONG_WAY,
        "len(tensor_object.shape) > most_rank": _LONG_WAY,
        "order[1:] > order[:-1]": "no place stands twice in an order",
        "span > _MOST_SPREAD * int(table.lengths.sum())": _SPEED,
        "stop - start >= _LEAST_RUN": _SPEED,
        "table.ranks <= most_rank": _LONG_WAY,
        "workers > 1": _SPEED,
    },
    "reading/overlaps.py": {
        "left < 0": _ESTIMATE,
    },
    "reading/plain.py": {
        "len(found.shape) > self._most_rank": _LONG_WAY,
        "len(self._digests) >= _MOST_KNOWN": "how many digests are remembered",
        "len(self._places) >= _MOST_KNOWN": "how many places are remembered",
        "length >= LEAST_BYTES": _SPEED,
        "number < _TAKEN": "of digests of 64 bits one; nobody has bytes that have it",
        "place[3] > _MOST_AT_ONCE": _LONG_WAY,
        "ranks <= self._most_rank": _LONG_WAY,
        "row is None": _SPEED,
    },
    "reading/recovery.py": {
        "at >= 0": "what is looked for begins behind the first byte",
    },
    "reading/row_slices.py": {
        "abs(rows.step) > 1": "with a step of 1 every row is one of them",
        "count is None": "a count that several tell, or that decoding tells later",
        "high > low": "one row is the same from either end",
        "rows.step < 0": "no step is 0",
    },
    "reading/runs.py": {
        "groups[-1].run < 0": _SPEED,
        "len(groups) > 1": _SPEED,
        "len(self._tables) > 1": _SPEED,
        "len(work) > 1": _SPEED,
        "nbytes + length > _AT_ONCE_BYTES": _SPEED,
        "nbytes > _AT_ONCE_BYTES": _SPEED,
        "nbytes >= _WORTH_BYTES": _SPEED,
        "offset + len(target) > decoded[number + 1]": _SPEED,
        "self._table_bytes > KEPT_TABLE_BYTES": _SPEED,
    },
    "reading/selection.py": {
        "_largest_step(indices) * stride - self._span(inner) < self.gap": _SPEED,
        "chosen.step < 0": "no step is 0",
    },
    "reading/several_slices.py": {
        "len(self._of_file) < 2": _SPEED,
    },
    "reading/slices.py": {
        "whole is not None": _SPEED,
    },
    "reading/small.py": {
        "counts * sizes <= most": _LONG_WAY,
        "int(small.nbytes.sum()) > _LEAST_FOR_THREADS * len(small.names)": _SPEED,
        "len(names) < len(objects) // _FEW": _SPEED,
        "len(packed) >= _LEAST_PACKED": _SPEED,
        "len(rows) < _LEAST_PACKED": _SPEED,
        "lengths <= _MOST_STORED": _LONG_WAY,
        "lengths > 0": "no bytes are right in runs as they are by themselves",
        "nbytes > _LEAST_FOR_THREADS * count": _SPEED,
        "offsets[rows][1:] >= reach[:-1]": _LONG_WAY,
        "table.lengths[rows] <= _MOST_STORED": _LONG_WAY,
        "table.lengths[rows] > 0": _LONG_WAY,
        "table.ranks <= file.limits.rank": _LONG_WAY,
    },
    "reading/stored_array.py": {
        "integers < rank": _SPEED,
    },
    "reading/verify.py": {
        "len(objects) < 2": _SPEED,
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
