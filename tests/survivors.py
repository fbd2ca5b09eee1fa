"""Which mutants survive rightly, and why nobody can notice them: see `mutants.py`.

For each module the comparison as `ast.unparse` writes it, its two sides with it, and the reason.
Only what was seen to survive stands here.
"""

from __future__ import annotations

_SPEED = "only which of two ways is taken; both give the same, one of them sooner"
_ESTIMATE = "an estimate of memory; at the edge either number holds"
_LONG_WAY = "the value at the edge is read the long way, with the same result"
_CLOCK = "the clock stands there for no moment that anyone could wait for"

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
    "source/ahead.py": {
        "number < len(self._extents.starts)": "no number is that of one behind the last",
        "stop - offset <= destination.nbytes": _SPEED,
        "stop - start > _WINDOW_BYTES": _SPEED,
    },
    "source/appending.py": {
        "self._unstarted >= START_BYTES": _SPEED,
    },
    "source/cache.py": {
        "0 < length": "no end of no bytes is kept",
        "count > self._left": "the folder is looked at a write sooner, and held to its size",
        "len(batch) > 1": _SPEED,
    },
    "source/caching.py": {
        "count > 0": "of a joined file an empty range is left out by the file it is of",
    },
    "source/gathering.py": {
        "count <= _GATHER_BYTES": _SPEED,
        "len(self._buffer) >= _BUFFER_BYTES": _SPEED,
    },
    "source/guards.py": {
        "end <= self._room": "at the edge the end is the room already",
        "needed > self._room": "room is made a write sooner, and given back",
        "self._room < end": "not asked where both are equal",
        "self._room > self._file.size": "the file is cut to the length it has",
        "view.nbytes < piece": _SPEED,
    },
    "source/hub_tree.py": {
        "time.monotonic() > until": _CLOCK,
    },
    "source/joined.py": {
        "within + destination.nbytes <= self.sources[number].size": _LONG_WAY,
    },
    "source/local.py": {
        "destination.nbytes >= _COPIED_BYTES": _SPEED,
        "wanted >= _COPIED_BYTES": _SPEED,
    },
    "source/locking.py": {
        "time.monotonic() >= until": _CLOCK,
    },
    "source/pieces.py": {
        "high > low": "where nothing lies between them, nothing is copied",
        "len(run) > 1": "the end of the run before lies before that of this one",
        "offset + memory.nbytes > stop": "what is full goes when the next bytes come",
        "offset >= stop": "nothing of it is taken before it is its turn",
        "run[first][0] + run[first][1].nbytes <= stop": _SPEED,
        "targets[0][0] < stop": "nothing of it is copied, and it goes on waiting",
    },
    "source/remote.py": {
        "2 * sum((memory.nbytes for _, memory in targets)) < stop - start": _SPEED,
        "len(pieces) < 2": _SPEED,
        "len(self._blocks) * _BLOCK_BYTES > _CACHE_BYTES": _SPEED,
        "offset < start": "what begins with the tail lies in what is kept, either way",
        "start < offset + destination.nbytes": "at the edge nothing is copied from the tail",
    },
    "source/rights.py": {
        "acl is None": "the two answers change places, and are compared with one another alone",
    },
    "source/sink.py": {
        "done < length": "the kernel copies no bytes once more",
        "nbytes >= LEAST_BYTES": _SPEED,
        "self._unstarted >= START_BYTES": _SPEED,
        "time.monotonic() > until": _CLOCK,
        "written < nbytes": "at the edge nothing is left to write",
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
