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
    "container/walk.py": {
        "count >= least": _SPEED,
        "nbytes > _LONG": _ESTIMATE,
    },
    "container/v2/emit.py": {
        "component is None": _SPEED,
    },
    "edit/editor.py": {
        "kinds <= {*(emitter.form.checksums or writable())}": "no version has one kind alone",
    },
    "encoding/zstd/codec.py": {
        "frame.stop - frame.start <= ONE_PASS_BYTES + frame.window": _SPEED,
        "frame.stop == stop": _SPEED,
        "held <= KEPT_WINDOW": _SPEED,
        "held > KEPT_WINDOW": _SPEED,
        "largest <= KEPT_WINDOW": _SPEED,
        "reader.readinto(destination) == len(destination)": _SPEED,
    },
    "encoding/zstd/frames.py": {
        "at >= lengths[:, None]": "what is cut in its header has no room for a block",
        "end < self.length": _SPEED,
        "kinds < _COMPRESSED": "compressed blocks take the other of two ways",
        "len(head) < 3": _SPEED,
        "len(head) < 5": "a frame that is cut behind five bytes is cut in its header",
        "position + most > end": _SPEED,
        "position < self.length": "no bytes are read behind the last one",
    },
    "encoding/zstd/held.py": {
        "stop - start > (HELD_BYTES if most is None else most)": _SPEED,
    },
    "encoding/zstd/listing.py": {
        "piece < _RUN_BYTES": "frames of so many bytes are entered one by one either way",
    },
    "encoding/zstd_seekable.py": {
        "count > 1": "one entry has nothing to be compared with",
        "expected_length <= _USUAL_RATIO * stored.length": "a lie is seen when it is decoded",
        "found < expected": "where they are equal nothing is wrong",
        "high - low <= _PIECE_BYTES": _SPEED,
        "stored >= 0": "no bytes are no frame",
    },
    "foreign/base.py": {
        "elements.ndim < 2": _SPEED,
        "elements.strides[-1] == elements.itemsize": _SPEED,
        "len(target) > 1": _SPEED,
        "steps[0] - inner > _GAP_BYTES": _SPEED,
        "whole <= _READ_BYTES": _SPEED,
    },
    "foreign/dcp/assembling.py": {
        "before != at": "bytes come in order; turned, a box is read once more",
        "boxes.offsets <= lengths": "no box is empty, and no other fits where its tensor ends",
    },
    "foreign/dcp/checkpoint.py": {
        "places[:, 1] <= there": "where a file ends lies nothing but what has no bytes",
    },
    "foreign/dcp/chunks.py": {
        "(int(code.max()) + 1) * (int(other.max()) + 1) >= _MOST_CODE": _LONG_WAY,
    },
    "foreign/dcp/lanes.py": {
        "before == short": "a row whose beginning is guessed wrongly is read the long way",
        "cut < ends[row]": "where a row ends an instruction does",
        "len(reading.fields) < _MOST_FIELDS": "rows of one more field are columns, with its values",
        "self._at[rows] <= len(self._data)": "no run is taken that ends where the bytes do",
        "start + length < len(self._data)": "behind a text at the very end nothing follows",
        "width > 0": "only the codes of numbers come here, and each has a width",
    },
    "foreign/dcp/pickles.py": {
        "frame >= stop": "a frame at the very end cuts nothing",
        "length < _LEAST_FRAME": _LONG_WAY,
        "part.start < position": "the same part is read again",
        "part.start <= position": "the same part is read again",
        "part.stop < len(self._machine.data)": "the last part is read again from there on",
        "position < part.stop": _LONG_WAY,
        "position < self._before": _LONG_WAY,
        "self.lanes.ends[row - 1] > len(self.data) - _TAIL_BYTES": _SPEED,
        "stop - first < _LEAST": _SPEED,
    },
    "foreign/dcp/projecting.py": {
        "metadata.size > _LONG_BYTES": _SPEED,
    },
    "foreign/dcp/records.py": {
        "component.offset < entry.end": "a member's data lies behind its header",
        "element.per_element > 1": "a length times one",
        "entry.begin < component.offset": "a member's data lies behind its header",
    },
    "foreign/dcp/shards.py": {
        "element.per_element > 1": "a length divided by one",
    },
    "foreign/deflate.py": {
        "inflater.position > start": "at the edge an empty piece is added",
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
    "foreign/hdf5/chunks.py": {
        "len(numbers) > 1": "one chunk is compared with none",
    },
    "foreign/hdf5/datatype.py": {
        "end < 0": "a name never begins the message, so no end is 0",
    },
    "foreign/hdf5/exporting.py": {
        "done < count": "at the edge a piece of no bytes is added",
    },
    "foreign/hdf5/filters.py": {
        "width > len(data)": "one element, its bytes apart, is as it was",
    },
    "foreign/hdf5/lzf.py": {
        "length <= distance": _LONG_WAY,
    },
    "foreign/hdf5/window.py": {
        "at + length > _PAGE_BYTES": _SPEED,
        "len(self._pages) >= _MOST_PAGES": "how many pages are kept",
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
        "names >= _COMMON": "beside the three nothing stands, which is asked as well",
    },
    "foreign/onnx/encodings.py": {
        "start < data.size": "at the end an empty piece is looked at, and ends the loop",
    },
    "foreign/onnx/projecting.py": {
        "inner < 128": "128 has neither kind in its low bits; before a number it is tested",
        "more >= 128": "so long a text would end behind the node, which is looked into either way",
    },
    "foreign/onnx/protobuf.py": {
        "0 <= begin": _LONG_WAY,
        "begin + count > len(self._block)": _SPEED,
        "begin < 0": _SPEED,
    },
    "foreign/pt/encodings.py": {
        "geometry.span <= max(_SPAN_BYTES, _SPAN_PART * destination.nbytes)": _SPEED,
        "len(rest) >= PIECE_BYTES": "the last block comes from what is left, whole as it is",
    },
    "foreign/pt/objects.py": {
        "per_element > 1": "the last axis times one",
        "self._free_bytes < 0": "no steps are charged",
    },
    "foreign/pt/pickle_machine.py": {
        "count < place": "that the place is the next one was asked before",
        "len(self.calls) < _MOST_CALLS": "how many names are looked up once",
        "len(state) < 16": _ESTIMATE,
        "len(value) > SHORT": _ESTIMATE,
        "nbytes > BATCH": _ESTIMATE,
        "place < count": "that the place is the next one was asked before",
        "self.cost > BATCH": _ESTIMATE,
        "stop < 0": "a line never begins the pickle: an instruction is before it",
    },
    "foreign/pt/pickle_reader.py": {
        "machine.cost > BATCH": _ESTIMATE,
    },
    "foreign/safetensors.py": {
        "at > length": "that they differ was asked before",
        "len(entry) > 3": "what has no field more is not deep; for what is told it is tested",
        "len(names) >= _COLUMNS_FROM": _SPEED,
    },
    "foreign/zip.py": {
        "at + 4 <= len(extra)": "a field of no bytes at the end has no number",
    },
    "layout/dense.py": {
        "count < flat.size": "nothing is cut off where the counts are equal",
    },
    "layout/elements.py": {
        "array.itemsize > 1": "a number of one byte stays itself when it is swapped",
        "array.nbytes > BLOCK_BYTES": _SPEED,
        "stored.max() > 1": "bools of 0 and 1 stay as they are",
    },
    "layout/quantization/dequantizing.py": {
        "1 < count": _SPEED,
        "components['scales'].size <= _WHOLE": _SPEED,
        "count < 8": _SPEED,
        "count >= 64": "64 is a multiple of 8, too",
        "count >= 8": "8 is a multiple of 1, too",
        "group <= height": _SPEED,
        "height < self.group": "at the edge both are equal",
        "self.groups_of is not None": _SPEED,
    },
    "layout/quantization/namespace.py": {
        "count <= 1": _SPEED,
        "end > arena.size": _SPEED,
    },
    "layout/quantization/quantizing.py": {
        "scheme.group_axis == 0": _SPEED,
    },
    "layout/quantization/unpacking.py": {
        "axis == 1": "only a big-endian machine could tell",
        "bits < 8": "for eight bits the two steps undo one another",
        "sys.byteorder == 'big'": _LONG_WAY,
        "width > 8": "the upper half of a byte is made once more, and not used",
        "width > bits": "the upper half of a byte is made once more, and not used",
    },
    "layout/sparse.py": {
        "indices.min() >= 0": _LONG_WAY,
        "target.dtype.kind in 'biufc'": _SPEED,
    },
    "layout/sparse_once.py": {
        "element_count(shape) <= _INT64_MAX": _LONG_WAY,
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
    "reading/listing.py": {
        "one.encoding != 'raw'": "how much is read ahead of who asks",
        "start >= 0": _SPEED,
    },
    "reading/loading.py": {
        "2 * int(rows.lengths.sum()) < file.source.size": _SPEED,
        "span > _MOST_SPREAD * int(rows.lengths.sum())": _SPEED,
        "workers > 1": _SPEED,
    },
    "reading/overlaps.py": {
        "left < 0": _ESTIMATE,
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
    "reading/stored_array.py": {
        "integers < rank": _SPEED,
        "needed > WHOLE_BYTES": _SPEED,
    },
    "reading/verify.py": {
        "len(names) == len(every)": _SPEED,
        "len(objects) < 2": _SPEED,
        "set(names) == set(every)": _SPEED,
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
    "wire/cbor/encoding.py": {
        "0 <= argument": "0 is written before",
        "number < 24": "24 to 31 are refused before",
    },
    "wire/json.py": {
        "cost > budget.bytes_left": _ESTIMATE,
        "stop - start > _SHORT": _ESTIMATE,
    },
    "writing/blob.py": {
        "algorithm is not None": _SPEED,
        "compression is None": _SPEED,
        "count >= _HOLE": "a hole reads as zeros",
        "crew.count > 1": _SPEED,
        "data.nbytes >= _BESIDE_BYTES": _SPEED,
        "done > self._hashed": "what is fresh lies behind",
        "offset > position": "to write no zeros changes nothing",
        "self.digest_later is None": _SPEED,
    },
    "writing/canonical.py": {
        "place <= self._last": "an equal name is refused before",
    },
    "writing/compressing.py": {
        "crew is not None": _SPEED,
        "crew.count > 1": _SPEED,
        "data.nbytes < take": "a frame that is whole goes out with the next ones",
        "data.nbytes <= self._alone_bytes": _SPEED,
        "data.nbytes <= self._copied_bytes": _SPEED,
        "len(self._pending) >= _JOB_BYTES": _SPEED,
        "len(self._under_way) > 1": _SPEED,
        "self._copied_bytes > 0": _SPEED,
        "self._crew is not None": _SPEED,
        "self._waiting > _MOST_WAITING_BYTES": _SPEED,
        "stored + _most_stored(total - decoded, frames) < total": "at the edge the end tells it",
        "stored > _HELD_BYTES": _SPEED,
    },
    "writing/copying.py": {
        "digest is not None": _SPEED,
    },
    "writing/output.py": {
        "array.nbytes <= SMALL_BYTES": _SPEED,
        "waiting > _MOST_WAITING_BYTES": _SPEED,
    },
    "writing/planning.py": {
        "arrays[role] is array": "another tensor of the same parts is made",
        "int(arrays[role].min()) < 0": _SPEED,
    },
    "writing/rows.py": {
        "0 < array.nbytes": _SPEED,
        "array.nbytes <= most": _SPEED,
    },
    "writing/saving.py": {
        "nbytes > _BATCH_BYTES": _SPEED,
    },
    "writing/stream.py": {
        "packed.elements_per_storage > 1": "of one, any number of elements fills whole bytes",
    },
    "writing/writer.py": {
        "self._small is None": _SPEED,
    },
}
