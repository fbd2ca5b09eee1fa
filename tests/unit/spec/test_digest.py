from __future__ import annotations

import sys
import zlib
from itertools import pairwise

import pytest

from tests.refusals import refused
from ztensor.errors import (
    DigestMismatchError,
    FormatError,
    MissingDependencyError,
    Reason,
)
from ztensor.ext import ALGORITHMS
from ztensor.spec import digest as digests

parse_digest = digests.parse_digest
require_match = digests.require_match

NINE = b"123456789"
SHA_OF_NINE = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"


@pytest.mark.parametrize(
    ("name", "text"),
    [("crc32c", "crc32c:0xE3069283"), ("sha256", f"sha256:{SHA_OF_NINE}")],
)
@pytest.mark.parametrize("cuts", [(0, 9), (0, 1, 9), (0, 0, 4, 9, 9)], ids=str)
def test_the_check_value_in_the_spelling_of_released_writers(
    name: str, text: str, cuts: tuple[int, ...]
) -> None:
    pieces = [memoryview(NINE)[start:stop] for start, stop in pairwise(cuts)]
    assert ALGORITHMS[name].of(pieces) == text
    assert ALGORITHMS[name].of([bytes(piece) for piece in pieces]) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("crc32c", "crc32c:0x00000000"),
        ("sha256", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ],
)
def test_the_digest_of_no_bytes(name: str, text: str) -> None:
    assert ALGORITHMS[name].of([]) == text


@pytest.mark.parametrize("cut", range(10))
def test_the_crc_of_a_zip_member_continues_behind_its_header(cut: int) -> None:
    digest = parse_digest(f"zip-crc32:{zlib.crc32(NINE[:cut]):08x}{zlib.crc32(NINE):08x}")
    assert digest.known is not None
    hasher = digest.known.hasher()
    hasher.update(NINE[cut:])
    require_match(digest, hasher.hexdigest())
    hasher.update(b"\0")
    with pytest.raises(DigestMismatchError) as caught:
        require_match(digest, hasher.hexdigest())
    assert caught.value.section is None


def test_xxh3_is_computed_by_its_library() -> None:
    pytest.importorskip("xxhash", reason="xxhash is optional")
    assert ALGORITHMS["xxh3"].of([b"a", b"bc"]) == "xxh3:78af5f94892f3950"


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with refused(MissingDependencyError, Reason.MISSING_DEPENDENCY, match="pip install xxhash"):
        ALGORITHMS["xxh3"].hasher()


SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "algorithm", "expected", "is_known"),
    [
        ("crc32c:0x1234ABCD", "crc32c", "1234abcd", True),
        ("crc32c:0X1234abcd", "crc32c", "1234abcd", True),
        ("crc32c:1234ABCD", "crc32c", "1234abcd", True),
        (f"SHA256:0x{SHA.upper()}", "sha256", SHA, True),
        ("xxh3:0123456789ABCDEF", "xxh3", "0123456789abcdef", True),
        ("xxh3:" + "ab" * 16, "xxh3", "ab" * 16, False),  # 128 bits: no text fixes the width
        ("md5:d41d8cd98f00b204e9800998ecf8427e", "md5", "d41d8cd98f00b204e9800998ecf8427e", False),
        ("blake3:not-hex=at+all", "blake3", "not-hex=at+all", False),
    ],
)
def test_every_spelling_is_read(text: str, algorithm: str, expected: str, is_known: bool) -> None:
    digest = parse_digest(text)
    assert digest == digests.Digest(algorithm, expected)
    assert (digest.known is ALGORITHMS.get(algorithm)) is (is_known or algorithm not in ALGORITHMS)
    assert (digest.known is not None) is is_known
    assert digests.check_digest(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "crc32c",
        "crc32c:",
        "crc32c:1234ABC",
        "crc32c:1234ABCG",
        " crc32c:1234ABCD",
        "crc32c:1234ABCD\n",
        "crc32c:١٢٣٤٥٦٧٨",  # digits, but not ours
        "xxh3:not-hex",
        "md5:with space",
    ],
    ids=ascii,
)
def test_malformed_digests_of_known_algorithms_are_refused(text: str) -> None:
    with refused(FormatError, Reason.DIGEST_MALFORMED) as caught:
        parse_digest(text)
    (problem,) = digests.check_digest(text)
    assert problem.reason is Reason.DIGEST_MALFORMED
    assert problem.section == caught.value.section
    assert str(problem).isascii()


def test_a_match_ignores_case_and_a_mismatch_says_both() -> None:
    digest = parse_digest("crc32c:0xE3069283")
    require_match(digest, "e3069283")
    require_match(digest, "E3069283")
    with pytest.raises(DigestMismatchError) as caught:
        require_match(digest, "E3069284")
    error = caught.value
    assert error.reason is Reason.DIGEST_MISMATCH
    assert (error.algorithm, error.expected, error.actual) == ("crc32c", "e3069283", "e3069284")
