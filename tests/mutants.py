"""Turn one comparison at a time and see whether the tests of that module notice: `make mutants`.

    python tests/mutants.py                     200 mutants, the same for the same seed
    python tests/mutants.py --count 20 --seed 7
    python tests/mutants.py --module reading/slices.py --count 50

A mutant is killed where the module's own tests (`tests/tree.py` says which) fail or hang. Prints
what survived; exits with 1 where fewer than 90 % of those that matter were killed. A survivor that
changes nothing but speed, or nothing at all, is written down in `EQUAL` with the reason.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started by path

from tests.tree import ROOT, SOURCE, files_for

ROOMS = (
    "reading", "writing", "container", "layout", "encoding", "edit", "sharded", "foreign", "wire",
    "source", "model",
)  # fmt: skip
TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
WORDS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
SECONDS = 150
LEAST_KILLED = 0.9
# What survives rightly: a module, part of a line as it is written, and why nobody can notice.
_SPEED = "only which of two ways is taken; both give the same, one of them sooner"
_ESTIMATE = "an estimate of memory; at the edge either number holds"
_LONG_WAY = "the value at the edge is read the long way, with the same result"
EQUAL: dict[tuple[str, str], str] = {
    ("source/gathering.py", "if count <= _GATHER_BYTES:"): _SPEED,
    ("reading/runs.py", "if some and nbytes + length > _AT_ONCE_BYTES:"): _SPEED,
    ("layout/gguf_blocks.py", "floats = place if target == np.float32"): _SPEED,
    ("container/v1/pieces.py", "if len(pieces) <= width * count:"): _LONG_WAY,
    ("foreign/pt/pickle_columns.py", "if frame >= stop:"): _LONG_WAY,
    ("container/v2/small.py", "or max(stored, held) > _MOST_BYTES:"): _LONG_WAY,
    ("foreign/npz/exporting.py", "if count >= zip.MOST_16"): "at the edge both records say it",
    ("foreign/pt/pickle_machine.py", "len(value) > SHORT:"): _ESTIMATE,
    ("foreign/pt/pickle_columns.py", "if stop - first < _LEAST:"): _SPEED,
    ("reading/loading.py", "span > _MOST_SPREAD * int("): _SPEED,
    ("writing/blob.py", "if fresh.nbytes and done > self._hashed:"): "what is fresh lies behind",
    ("source/remote.py", "if done > stop:"): "at the end nothing more comes",
    ("source/sink.py", "if self._unstarted >= START_BYTES"): _SPEED,
    ("reading/verify.py", "if workers <= 1 or len(objects) < 2:"): _SPEED,
    ("foreign/hdf5/window.py", "if at + length > _PAGE_BYTES:"): _SPEED,
    ("writing/blob.py", "crew.count > 1 else None"): _SPEED,
    (
        "wire/cbor/decoding.py",
        "if len(words) < _WORDS:",
    ): "how many short texts are kept to be shared",
    ("wire/cbor/decoding.py", "if strict and (0xDF < first < 0xF4"): "0xDF is the head of a tag",
    ("container/v1/object.py", "or length < 0"): _LONG_WAY,
    ("container/v1/object.py", "or offset < 64"): _LONG_WAY,
    ("container/v1/object.py", "or offset + length > frame.manifest_offset"): _LONG_WAY,
    ("foreign/deflate.py", "if length <= _WHOLE_BYTES:"): _SPEED,
    ("foreign/gguf/metadata.py", "if start > have:"): "asks for bytes that are there",
    ("foreign/hdf5/datatype.py", "if end < 0:"): "a name never begins the message, so no end is 0",
    (
        "foreign/npz/exporting.py",
        "return (zip.MOST_32,) * 2 if",
    ): "at the edge both numbers are equal",
    (
        "foreign/onnx/projecting.py",
        "while place < end:",
    ): "leads to the general walk, as any odd node",
    (
        "layout/elements.py",
        "if stored.size and stored.max() > 1:",
    ): "bools of 0 and 1 stay as they are",
    ("layout/quantization/dequantizing.py", "span = self.group if"): "at the edge both are equal",
    ("layout/quantization/dequantizing.py", "often = self.groups_of is not None or"): _SPEED,
    ("layout/quantization/dequantizing.py", "if often and components"): _SPEED,
    ("layout/quantization/unpacking.py", "if 8 % bits or (axis == 1"): (
        "both ways give the same integers; the second comparison is about big-endian machines"
    ),
    ("layout/quantization/unpacking.py", "if scheme.signed and bits < 8:"): (
        "for eight bits the two steps undo one another"
    ),
    ("model/manifest.py", "if len(known) < len(names):"): "nothing is added where all are known",
    ("reading/ahead.py", 'if component.encoding == "raw" and component.byte_order'): _SPEED,
    ("reading/ahead.py", "return nbytes is None or nbytes >= _LEAST_BYTES"): _SPEED,
    ("reading/runs.py", "if groups and groups[-1].run < 0:"): _SPEED,
    ("reading/runs.py", "is_worth_it = len(work) > 1"): _SPEED,
    ("reading/runs.py", "count = len(work) if workers == 1"): _SPEED,
    ("sharded/index.py", 'if stop < 0 or "\\\\" in around:'): "the map never begins the text",
    ("wire/lockstep.py", "if low + room > len(data):"): "at the edge it copies what it could view",
    ("container/v1/schema.py", "if pos - start > _LONG"): _ESTIMATE,
    ("container/v2/schema.py", "if pos - start > _LONG"): _ESTIMATE,
    ("container/v2/regular.py", "int(lengths.max()) <= 1024"): _LONG_WAY,
    ("container/v2/small.py", "if number > _MOST_BYTES"): _LONG_WAY,
    ("foreign/npz/members.py", "if skip < len(piece):"): "at the edge an empty piece is added",
    (
        "foreign/pt/pickle_machine.py",
        "elif 0 <= place < count:",
    ): "that the place is the next one was asked before",
    ("reading/component.py", "len(runs.decoded) > 2"): _SPEED,
    ("reading/each.py", "if dtype is None or is_raw or"): _SPEED,
    ("reading/loading.py", "few = len(table.spellings) <= _FEW_TYPES"): _SPEED,
    ("reading/loading.py", "is_border = is_alone[1:]"): _SPEED,
    ("reading/recovery.py", "while at >= 0:"): "what is looked for begins behind the first byte",
    ("reading/row_slices.py", "rows.step < 0 else new"): "no step is 0",
    ("reading/slices.py", "if whole is not None:"): _SPEED,
    ("source/appending.py", "if descriptor is not None:"): (
        "a number that nobody holds any more is given back by itself"
    ),
    ("source/locking.py", "if descriptor >= 0:"): "0 is the standard input's",
    ("wire/lockstep.py", "if size.max(initial=0) >= _WORD:"): (
        "of a word of one piece nothing is left for the second, in the file and in the vocabulary"
    ),
    ("writing/compressing.py", "is_copied = self._copied_bytes > 0"): _SPEED,
    ("container/v1/pieces.py", "if item[0] == _NAME_8 and"): _LONG_WAY,
    ("container/v1/schema.py", "if len(data) <= PIECES_BYTES:"): _SPEED,
    ("container/v1/schema.py", "if pairs > (len(data) - start) // 2:"): _LONG_WAY,
    ("encoding/zstd/frames.py", "if position + most > end and"): _SPEED,
    ("foreign/base.py", "is_far = bool(steps) and"): _SPEED,
    ("foreign/dcp/records.py", "if entry.begin < component.offset < entry.end"): (
        "a member's data lies behind its header, and is compared with its place"
    ),
    ("foreign/deflate.py", "if inflater.position > start:"): "at the edge an empty piece is added",
    ("foreign/hdf5/heaps.py", "if length < 0:"): "no object of no bytes is a huge one",
    ("foreign/pt/pickle_rows.py", "or not call.least <= 1 <= call.most"): _LONG_WAY,
    ("layout/dense.py", "if count < flat.size <= count + 1 and"): (
        "nothing is cut off where the counts are equal"
    ),
    ("layout/quantization/dequantizing.py", "if self.byte_table is not None and"): _SPEED,
    ("layout/quantization/unpacking.py", "if width > 8:"): (
        "the upper half of a byte is made once more, and not used"
    ),
    ("reading/runs.py", "while self._table_bytes > KEPT_TABLE_BYTES"): _SPEED,
    ("source/base.py", "if count <= _KEPT_BYTES:"): _SPEED,
    ("source/remote.py", "while len(self._blocks) * _BLOCK_BYTES > _CACHE_BYTES:"): _SPEED,
    ("wire/cbor/decoding.py", "(1 + _WIDE) * length > room"): _ESTIMATE,
    ("wire/cbor/decoding.py", "2 * length > room"): _ESTIMATE,
    ("wire/cbor/decoding.py", "if room < 0 and budget is not None:"): _ESTIMATE,
    ("writing/compressing.py", "self._crew = crew if"): _SPEED,
}


class Mutant(NamedTuple):
    """One comparison of a module, to be turned.

    Attributes:
        module: the module's path below `src/ztensor`.
        start: where in its text the operator begins.
        stop: where it ends.
        text: what is put there.
        line: number of the line.
    """

    module: Path
    start: int
    stop: int
    text: str
    line: int


def mutants_of(module: Path) -> list[Mutant]:
    """Return every comparison of a module but those that only decide what is imported for types."""
    text = (SOURCE / module).read_text("utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            begin = starts[(left.end_lineno or 1) - 1] + (left.end_col_offset or 0)
            end = starts[right.lineno - 1] + right.col_offset
            word = WORDS[type(operator)].encode()
            place = data.find(word, begin, end)
            if place >= 0:
                stop = place + len(word)
                found.append(Mutant(module, place, stop, TURNED[type(operator)], left.lineno))
    return found


def line_of(mutant: Mutant) -> str:
    """Return the line of a mutant, as it is written."""
    return (SOURCE / mutant.module).read_text("utf-8").splitlines()[mutant.line - 1].strip()


def survives(mutant: Mutant) -> bool:
    """Return whether the module's tests pass with the comparison turned."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "ztensor")
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        data = (SOURCE / mutant.module).read_bytes()
        changed = data[: mutant.start] + mutant.text.encode() + data[mutant.stop :]
        (package / mutant.module).write_bytes(changed)
        try:
            done = subprocess.run(
                [
                    sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                    "-m", "not fuzz and not interop", "--no-header",
                    *map(str, files_for(mutant.module)),
                ],
                cwd=ROOT, capture_output=True, check=False, timeout=SECONDS,
                env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def reason_for(mutant: Mutant) -> str | None:
    """Return why nobody can notice a mutant, where that is known."""
    line, module = line_of(mutant), mutant.module.as_posix()
    reasons = (why for (where, part), why in EQUAL.items() if where == module and part in line)
    return next(reasons, None)


def main() -> int:
    """Run a sample; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", type=Path, action="append", help="below src/ztensor")
    options = parser.parse_args()
    modules = options.module or sorted(
        path.relative_to(SOURCE) for room in ROOMS for path in (SOURCE / room).rglob("*.py")
    )
    every = [mutant for module in modules for mutant in mutants_of(module)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"{len(chosen)} of {len(every)} comparisons, seed {options.seed}", flush=True)
    killed = equal = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, lives in zip(chosen, pool.map(survives, chosen), strict=True):
            killed += not lives
            if lives:
                reason = reason_for(mutant)
                equal += reason is not None
                what = f"SURVIVED {mutant.module}:{mutant.line} {mutant.text!r}: {line_of(mutant)}"
                print(f"{what}{'' if reason is None else f' ({reason})'}", flush=True)
    matter = len(chosen) - equal
    print(f"{killed} of {matter} killed ({killed / max(matter, 1):.0%}), {equal} change nothing")
    return 0 if killed >= LEAST_KILLED * matter else 1


if __name__ == "__main__":
    sys.exit(main())
