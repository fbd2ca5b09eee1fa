"""What the library says, and the tests that hold each sentence: `make honest`.

Each of these was once more than it knew. `make honest` runs the tests that are named here and
prints the table, as does every run that has all of them, slow ones too.
"""

from __future__ import annotations

import collections
from typing import NamedTuple


class Claim(NamedTuple):
    """One thing that is said to a user.

    Attributes:
        number: it was found under.
        before: what was said, or done, in silence.
        now: what is said now.
        tests: files of tests, or functions in them, that fail where it is said wrongly.
    """

    number: int
    before: str
    now: str
    tests: tuple[str, ...]


CLAIMS = (
    Claim(
        1,
        "a conversion that drops a graph says that nothing is lost, and deletes its input",
        "every reader accounts for all of its file; --strict and --delete-input ask it",
        (
            "tests/foreign_account/test_foreign_account.py",
            "tests/unit/test_account.py",
        ),
    ),
    Claim(
        2,
        "save_file(t, 'model.safetensors') writes zTensor bytes",
        "the suffix is obeyed, or refused with what to call; format= overrides",
        ("tests/unit/foreign/test_saving.py",),
    ),
    Claim(
        3,
        "pieces of another shape scramble the rows of a stream",
        "pieces are runs of whole rows, or flat where that is asked for",
        (
            "tests/unit/writing/test_writer.py::test_pieces_are_runs_of_rows",
            "tests/unit/writing/test_writer.py::test_a_piece_that_would_scramble_rows_is_refused",
            "tests/unit/writing/test_writer.py::test_flat_pieces_are_asked_for_and_end_at_a_row_before_rows_come",
        ),
    ),
    Claim(
        4,
        "the recipe for resuming a run loses the learning rate",
        "pages and examples run, and assert what they claim",
        ("tests/unit/test_readme.py", "tests/unit/test_examples.py"),
    ),
    Claim(
        5,
        "verify says ok of files in which it checked nothing",
        "ok, unchecked or damaged; --require-digests has an exit code of its own",
        ("tests/unit/reading/test_verify.py", "tests/unit/cli/test_verify.py"),
    ),
    Claim(
        6,
        "two distributions share an import name and overwrite each other in silence",
        "whose files are there is said, with the command that mends it",
        ("tests/unit/test_installation.py",),
    ),
    Claim(
        7,
        "a type checker takes readers and what is loaded for anything; tab shows the inside",
        "mypy and pyright know every result, with and without frameworks; tab shows what is public",
        ("tests/unit/test_typing.py", "tests/unit/test_public_api.py"),
    ),
    Claim(
        8,
        "a dict with numbers for keys comes back as pairs; info cuts keys in a pipe",
        "it comes back as it was, a page says what changes; cut is on a terminal only",
        ("tests/unit/cli/test_attributes.py",),
    ),
    Claim(
        9,
        "a folder with only pytorch_model.bin is refused; split writes no set that a hub reads",
        "one model in a folder opens, of several each is named; sets of safetensors are written",
        ("tests/unit/test_folders.py", "tests/unit/cli/test_shards_of_formats.py"),
    ),
    Claim(
        10,
        "what was typed is 'found', a web page has no magic at offset 0, errors show Python",
        "messages say what it is and what to type; code is told as code",
        (
            "tests/unit/cli/test_wrong_inputs.py",
            "tests/unit/foreign/test_lookalikes.py",
        ),
    ),
    Claim(
        11,
        "verbs and functions say one thing in several ways, empty patterns are a success",
        "each has the other's word, too; patterns that match nothing exit with 2",
        (
            "tests/unit/cli/test_wrong_inputs.py::test_a_pattern_that_matches_nothing",
            "tests/unit/cli/test_wrong_inputs.py::test_where_out_is_said",
            "tests/unit/cli/test_wrong_inputs.py::test_a_version_is_said_alike",
            "tests/unit/cli/test_attributes.py::test_metadata_and_attributes_are_one_word",
            "tests/unit/test_overwrite.py",
        ),
    ),
    Claim(
        12,
        "results print hundreds of thousands of characters at a prompt",
        "a short line; everything on request",
        ("tests/unit/test_results.py",),
    ),
    Claim(
        13,
        "75 rows a second of a compressed table, without a word about why",
        "frames end behind whole rows, as many as chunk_rows= says; a row decodes its frame alone",
        ("tests/unit/writing/test_frames.py", "tests/unit/reading/test_runs.py"),
    ),
    Claim(
        14,
        "right deflate streams are refused as too short",
        "every length around a piece is read, in every format that deflates",
        (
            "tests/attacks/test_zip.py::test_streams_of_every_length_around_a_piece",
            "tests/attacks/test_zip.py::test_every_format_reads_zeros_of_a_piece_and_some",
        ),
    ),
    Claim(
        14,
        "a matrix that SciPy saved opens as four or five arrays and a text",
        "one sparse object of its kind, checked; and load_npz reads what is written of one",
        ("tests/unit/foreign/test_scipy_npz.py",),
    ),
    Claim(
        15,
        "a model loads with buffers left on meta, a Dask graph over a replaced file has its name",
        "what stays on meta is said; another file, another name; what functions give pickles",
        (
            "tests/unit/torch/test_models.py",
            "tests/unit/reading/test_tokens.py",
            "tests/unit/test_results.py",
        ),
    ),
    Claim(
        16,
        "types of GGUF are listed and never numbers; a conversion cannot change values",
        "dequantized bit for bit as the package gguf does; convert says what it changed",
        (
            "tests/unit/layout/test_gguf_blocks.py",
            "tests/unit/layout/test_gguf_grids.py",
            "tests/unit/test_casting.py",
            "tests/unit/analysis/test_parameters.py",
        ),
    ),
)


class Outcomes:
    """Counts what tests came to, claim by claim."""

    def __init__(self) -> None:
        self._counts: dict[str, collections.Counter[str]] = {}

    def add(self, nodeid: str, outcome: str) -> None:
        """Note what one test came to: `passed`, `failed` or `skipped`."""
        function = nodeid.partition("[")[0]
        self._counts.setdefault(function, collections.Counter())[outcome] += 1

    def of(self, claim: Claim) -> collections.Counter[str]:
        """Return how many tests of a claim passed, failed and were skipped."""
        found: collections.Counter[str] = collections.Counter()
        for function, counts in self._counts.items():
            if any(function == test or function.startswith(f"{test}::") for test in claim.tests):
                found += counts
        return found

    def lines(self) -> list[str]:
        """Return the table; none where the tests of a claim were left out of the run."""
        rows = [(claim, self.of(claim)) for claim in CLAIMS]
        if not all(counts for _, counts in rows):
            return []
        lines = [
            f"{claim.number:>3}  {verdict(counts):<8}{counts['passed']:>5} passed"
            f"{counts['failed']:>3} failed{counts['skipped']:>3} skipped  {claim.now}"
            for claim, counts in rows
        ]
        held = sum(verdict(counts) == "held" for _, counts in rows)
        return [*lines, f"{held} of {len(rows)} claims held"]


def verdict(counts: collections.Counter[str]) -> str:
    """Return what the tests of a claim say of it."""
    if counts["failed"]:
        return "BROKEN"
    return "held" if counts["passed"] else "not run"


def main() -> None:
    """Print the tests of all claims, as arguments of pytest."""
    print("\n".join(dict.fromkeys(test for claim in CLAIMS for test in claim.tests)))


if __name__ == "__main__":
    main()
