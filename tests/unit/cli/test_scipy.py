"""Verbs on a sparse matrix that SciPy saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor

sparse: Any = pytest.importorskip("scipy.sparse", reason="SciPy is optional")


def test_every_verb_takes_it(tmp_path: Path, run: Any) -> None:
    path, ours = tmp_path / "tfidf.npz", tmp_path / "all.zt"
    sparse.save_npz(path, sparse.csr_matrix(np.eye(4, 6, dtype=np.float32)))
    assert "sparse_csr" in run("ls", path).out
    for verb in ("info", "verify", "stats", "hash"):
        assert run(verb, path).code == 0
    assert "csr_matrix" in run("show", path, "array").out
    assert run("merge", path, "-o", ours).code == 0
    with ztensor.open(ours) as reader:
        assert reader.keys() == ["tfidf"]  # as the array of a .npy has its file's name
        np.testing.assert_array_equal(reader.read("tfidf").to_dense(), np.eye(4, 6))
    assert run("convert", path, tmp_path / "out.zt", "--strict").code == 0
    assert run("convert", tmp_path / "out.zt", tmp_path / "out.npz", "--strict").code == 0
    assert sparse.load_npz(tmp_path / "out.npz").nnz == 4
