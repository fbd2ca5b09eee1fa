"""Which tests hold which module, and which of them to run for what changed: `make check`.

A module `src/ztensor/a/b.py` is tested in `tests/unit/a/test_b.py`. If that file is missing, or
does not test everything, a line of `ELSEWHERE` names the files that do; a test compares the lines
with the tree.

    python tests/tree.py        those of what differs from the last commit, or of that commit
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, UNIT = ROOT / "src" / "ztensor", ROOT / "tests" / "unit"

_VERBS = ("unit/cli/test_edit_verbs.py", "unit/cli/test_every_verb.py")
_HDF5 = (
    "unit/foreign/test_hdf5.py",
    "unit/foreign/test_hdf5_structures.py",
    "unit/foreign/test_hdf5_filters.py",
    "unit/foreign/test_hdf5_datatypes.py",
    "foreign_account/test_foreign_account.py",
)
_PT = (
    "unit/foreign/test_pt.py",
    "unit/foreign/test_pt_limits.py",
    "foreign_account/test_foreign_account.py",
    "unit/foreign/test_pickle_reader.py",
)
_NPZ = (
    "unit/foreign/test_npz.py",
    "unit/foreign/test_npz_edges.py",
    "unit/foreign/test_scipy_npz.py",
    "attacks/test_zip.py",
    "foreign_account/test_foreign_account.py",
)
_QUANTIZATION = (
    "unit/layout/test_quantization.py",
    "unit/layout/test_quantization_2.py",
    "unit/layout/test_checkpoints.py",
)

# A module, or a folder of them for those that have no line of their own, and its tests.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "analysis/beside.py": ("unit/analysis/test_insight.py",),
    "analysis/document.py": ("unit/analysis/test_insight.py",),
    "analysis/examining.py": ("unit/analysis/test_insight.py",),
    "analysis/spreads.py": ("unit/analysis/test_statistics.py",),
    "analysis/tally.py": ("unit/analysis/test_comparing.py", "unit/analysis/test_insight.py"),
    "analysis/sums.py": ("unit/analysis/test_statistics.py", "unit/cli/test_show.py"),
    "flax.py": ("unit/test_jax.py",),
    "limits.py": ("attacks/test_budget_manifests.py", "attacks/test_budget_rank.py"),
    "metadata.py": ("unit/reading/test_reader.py",),
    "transformers.py": ("ecosystem/test_transformers.py",),
    "diffusers.py": ("ecosystem/test_diffusers.py",),
    "peft.py": ("ecosystem/test_peft.py",),
    "locks.py": ("unit/reading/test_forking.py",),
    "threads.py": (
        "unit/reading/test_loading.py",
        "attacks/test_decoding.py",
        "faults/test_exits.py",
    ),
    "checkpoints": (
        "unit/checkpoints/test_manager.py",
        "unit/checkpoints/test_divided_steps.py",
        "unit/checkpoints/test_terminating.py",
        "unit/checkpoints/test_flipped_bits.py",
        "faults/test_exits.py",
    ),
    "chunks/blocks.py": ("unit/foreign/test_hdf5.py", "unit/foreign/test_npz.py"),
    "chunks/assembling.py": ("unit/divided/test_opened.py",),
    "chunks/sums.py": ("unit/divided/test_opened.py",),
    "chunks/staging.py": ("unit/divided/test_opened.py",),
    "chunks/table.py": ("unit/divided/test_opened.py", "unit/divided/test_root.py"),
    "browsing/lists.py": ("unit/browsing/test_app.py",),
    "cli": _VERBS,
    "serving/connections.py": ("unit/serving/test_guard.py",),
    "serving/answers.py": ("unit/serving/test_server.py",),
    "serving/model.py": ("unit/serving/test_server.py",),
    "conformance": ("unit/conformance/test_running.py",),
    "cli/demo.py": ("unit/test_demo.py",),
    "cli/terminal.py": ("unit/cli/test_main.py", "unit/cli/test_show.py"),
    "container/framing.py": (
        "unit/container/test_v1.py",
        "unit/container/test_v2.py",
    ),
    "container/kinds.py": (
        "unit/container/test_v2_kinds.py",
        "property/test_kinds.py",
    ),
    "container/walk.py": ("unit/container/test_v1.py", "unit/container/test_v2.py"),
    "container/plain_rows.py": ("unit/container/test_v2_emit.py", "unit/container/test_v1.py"),
    "container/v2/emit.py": ("unit/container/test_v2_emit.py",),
    "container/v2/content.py": ("unit/analysis/test_content_digest.py",),
    "container/v2/places.py": (
        "unit/container/test_v2.py",
        "unit/container/test_v2_kinds.py",
        "conformance/test_corpus2.py",
    ),
    "container/v2/object.py": (
        "unit/container/test_v2.py",
        "unit/container/test_v2_emit.py",
        "conformance/test_corpus2.py",
    ),
    "container/v2/layouts.py": (
        "unit/container/test_v2_layouts.py",
        "unit/container/test_v2.py",
        "conformance/test_corpus2.py",
    ),
    "container/v2": ("unit/container/test_v2.py", "conformance/test_corpus2.py"),
    "container/v1/emit.py": ("unit/container/test_v1.py",),
    "container/v1/object.py": (
        "unit/container/test_v1.py",
        "unit/container/test_kinds.py",
        "unit/container/v1/test_schema.py",
    ),
    "container/v1/schema.py": (
        "unit/container/test_v1.py",
        "unit/container/test_kinds.py",
        "attacks/test_budget_manifests.py",
    ),
    "container/v1": ("unit/container/test_v1.py", "unit/container/test_kinds.py"),
    "cli/folders.py": ("unit/test_convert_folder.py",),
    "converting/folders.py": ("unit/test_convert_folder.py",),
    "source/appending.py": ("unit/source/test_guards.py",),
    "source/beneath.py": ("attacks/test_paths.py",),
    "source/table.py": (
        "unit/reading/test_tokens.py",
        "unit/reading/test_reader.py",
    ),
    "source/urls.py": (
        "remote/test_saved_by_torch.py",
        "remote/test_google.py",
        "remote/test_folders.py",
    ),
    "source/local.py": (
        "unit/source/test_local_unchanged.py",
        "unit/test_buffers.py",
        "unit/test_handle.py",
        "unit/reading/test_places.py",
    ),
    "source/prefixes.py": (
        "remote/test_google.py",
        "remote/test_lists.py",
    ),
    "source/remote.py": (
        "remote/test_hub.py",
        "remote/test_lies.py",
    ),
    "source/upload.py": ("unit/source/test_upload_answers.py", "remote/test_writing.py"),
    "source/sink.py": (
        "unit/source/test_descriptor.py",
        "unit/source/test_sink_refused.py",
        "unit/checkpoints/test_manager.py",
        "attacks/test_planted.py",
    ),
    "source/pieces.py": ("unit/source/test_remote.py", "remote/test_reading.py"),
    "source/whole_folder.py": (
        "unit/test_convert_folder.py",
        "unit/source/test_descriptor.py",
    ),
    "converting": ("unit/test_converting.py", "unit/cli/test_convert.py"),
    "divided/part.py": ("unit/divided/test_commit.py",),
    "divided/rows.py": ("unit/divided/test_commit.py",),
    "divided/place.py": ("unit/divided/test_root.py",),
    "divided/cleaning.py": ("unit/divided/test_commit.py",),
    "edit/editor.py": ("unit/edit/test_editor_2.py",),
    "edit/rewrite.py": ("unit/edit/test_dividing.py",),
    "edit/repairing.py": ("unit/edit/test_repair.py",),
    "encoding/zstd_seekable.py": ("unit/reading/test_decoding.py",),
    "encoding/base.py": ("unit/encoding/test_raw.py", "unit/encoding/test_zstd.py"),
    "encoding/zstd/frames.py": (
        "unit/encoding/test_zstd_frames.py",
        "unit/encoding/test_zstd.py",
        "unit/reading/test_bulk.py",
        "property/test_zstd.py",
    ),
    "encoding/zstd/codec.py": (
        "unit/encoding/test_zstd.py",
        "property/test_zstd.py",
        "unit/reading/test_decoding.py",
        "unit/testing/test_promise.py",
    ),
    "encoding/zstd/listing.py": (
        "unit/encoding/test_listing.py",
        "unit/encoding/test_zstd.py",
        "property/test_zstd.py",
        "unit/reading/test_ways.py",
    ),
    "encoding/zstd": ("unit/encoding/test_zstd.py", "property/test_zstd.py"),
    "fleet": ("unit/test_fleet.py",),
    "accelerate.py": ("ecosystem/test_accelerate.py", "unit/test_trainers.py"),
    "keras.py": ("ecosystem/test_keras.py", "unit/test_trainers.py"),
    "lightning.py": ("ecosystem/test_lightning.py", "unit/test_trainers.py"),
    "trainer.py": (
        "ecosystem/test_trainer.py",
        "unit/test_trainers.py",
        "unit/torch/test_unpacking.py",
    ),
    "torch/randomness.py": ("unit/test_trainers.py",),
    "jax": ("unit/test_jax.py",),
    "divided/sending.py": ("unit/test_jax_sharded.py",),
    "jax/sharded.py": ("unit/test_jax_sharded.py",),
    "jax/tree.py": ("unit/test_jax_tree.py",),
    "torch/checkpoint": (
        "unit/torch/test_checkpoint.py",
        "distributed/test_processes.py",
        "distributed/test_faults.py",
    ),
    "torch/tree.py": ("unit/torch/test_torch_tree.py",),
    "tree": ("unit/tree/test_encode.py", "unit/tree/test_decode.py"),
    "tree/stored.py": ("unit/test_states.py",),
    "tree/fitting.py": ("unit/test_states.py",),
    "notebook": ("unit/notebook/test_sheets.py",),
    "foreign/keras.py": ("foreign_account/test_foreign_account.py",),
    "foreign/safetensors.py": (
        "unit/foreign/test_safetensors_edges.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/base.py": (
        "unit/foreign/test_npz.py",
        "unit/foreign/test_gguf.py",
        "foreign_account/test_foreign_account.py",
        "unit/cli/test_edit_verbs.py",
    ),
    "foreign/dcp": (
        "unit/foreign/test_dcp.py",
        "unit/foreign/test_dcp_2.py",
        "unit/foreign/test_dcp_torch.py",
        "unit/foreign/test_dcp_columns.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/deflate.py": ("attacks/test_zip.py",),
    "foreign/gguf": (
        "unit/foreign/test_gguf.py",
        "attacks/test_gguf.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/hdf5/projecting.py": (*_HDF5, "unit/foreign/test_keras.py"),
    "foreign/hdf5/attributes.py": (*_HDF5, "unit/foreign/test_keras.py"),
    "foreign/hdf5/chunks.py": _HDF5,
    "foreign/hdf5/data.py": _HDF5,
    "foreign/hdf5/exporting.py": _HDF5,
    "foreign/hdf5/header.py": _HDF5,
    "foreign/hdf5/heaps.py": _HDF5,
    "foreign/hdf5/messages.py": _HDF5,
    "foreign/hdf5/superblock.py": _HDF5,
    "foreign/hdf5/trees.py": _HDF5,
    "foreign/hdf5/window.py": _HDF5,
    "foreign/hdf5": _HDF5,
    "foreign/npy.py": _NPZ,
    "foreign/npz": _NPZ,
    "foreign/onnx/protobuf.py": (
        "unit/foreign/test_protobuf.py",
        "unit/foreign/test_onnx.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/onnx": (
        "unit/foreign/test_onnx.py",
        "attacks/test_onnx.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/parts.py": (
        "unit/foreign/test_gguf.py",
        "unit/foreign/test_onnx.py",
        "unit/cli/test_convert.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/pt/encodings.py": (
        "unit/foreign/test_pt.py",
        "unit/foreign/test_pt_limits.py",
        "unit/foreign/test_pickle_reader.py",
        "attacks/test_zip.py",
        "foreign_account/test_foreign_account.py",
    ),
    "foreign/pt": _PT,
    "foreign/zip.py": _NPZ,
    "layout/elements.py": (
        "unit/writing/test_rows.py",
        "unit/test_tensor.py",
        "unit/writing/test_frames.py",
        "unit/reading/test_slices.py",
        "unit/container/test_v2.py",
    ),
    "layout/base.py": ("unit/layout/test_dense.py", "unit/layout/test_sparse.py"),
    "layout/gguf_decoding.py": ("unit/layout/test_gguf_blocks.py",),
    "layout/quantization": _QUANTIZATION,
    "layout/scipy_sparse.py": ("unit/foreign/test_scipy_npz.py", "unit/layout/test_lengths.py"),
    "analysis/peers.py": ("unit/analysis/test_timing.py",),
    "layout/sparse_once.py": ("conformance/test_corpus2.py",),
    "layout/sparse_coo.py": (
        "unit/layout/test_sparse.py",
        "unit/testing/test_promise.py",
    ),
    "layout/sparse_csr.py": (
        "unit/layout/test_sparse.py",
        "unit/cli/test_scipy.py",
    ),
    "model/dtype.py": ("unit/layout/test_dense.py",),
    "model/formats.py": (
        "unit/foreign/test_lookalikes.py",
        "unit/foreign/test_keras.py",
        "unit/foreign/test_saving.py",
    ),
    "model/account.py": (
        "unit/test_account.py",
        "unit/foreign/test_onnx.py",
        "foreign_account/test_foreign_account.py",
    ),
    "model/later.py": ("unit/foreign/test_npz.py", "unit/foreign/test_pt.py"),
    "model/shape.py": ("unit/reading/test_selection.py",),
    "model/showing.py": (
        "unit/test_results.py",
        "unit/browsing/test_lines.py",
    ),
    "model/table.py": ("unit/container/test_kinds.py", "unit/reading/test_loading.py"),
    "reading/bulk.py": (
        "unit/divided/test_nested.py",
        "unit/reading/test_verify.py",
    ),
    "reading/recovery.py": ("unit/reading/test_recovery_2.py",),
    "reading/runs.py": ("unit/reading/test_several_slices.py",),
    "reading/verify.py": (
        "unit/cli/test_verify.py",
        "unit/edit/test_repair.py",
    ),
    "reading/component.py": (
        "unit/reading/test_ways.py",
        "unit/reading/test_reader.py",
        "unit/divided/test_opened.py",
        "unit/test_threads.py",
        "unit/foreign/test_hdf5.py",
        "unit/reading/test_slices.py",
    ),
    "contents.py": (
        "unit/test_opening.py",
        "unit/foreign/test_npz.py",
        "faults/test_processes.py",
    ),
    "reading/filling.py": ("unit/reading/test_reader.py", "unit/torch/test_devices.py"),
    "reading/file.py": (
        "unit/reading/test_reader.py",
        "unit/reading/test_ways.py",
        "unit/reading/test_tokens.py",
        "unit/cli/test_convert.py",
    ),
    "reading/objects.py": ("unit/test_sharded.py", "unit/reading/test_reader.py"),
    "reading/portable.py": (
        "unit/test_converting.py",
        "unit/writing/test_writer.py",
        "unit/edit/test_dividing.py",
    ),
    "reading/loading.py": ("unit/test_sharded.py", "unit/reading/test_bulk.py"),
    "reading/listing.py": ("unit/container/test_kinds.py", "unit/reading/test_reader.py"),
    "reading/names.py": ("unit/cli/test_convert.py", "unit/test_converting.py"),
    "reading/overlaps.py": ("attacks/test_decoding.py",),
    "reading/locating.py": ("unit/reading/test_reader.py",),
    "reading/walking.py": ("unit/reading/test_verify.py",),
    "reading/row_slices.py": (
        "unit/reading/test_slices.py",
        "unit/layout/test_group_profiles.py",
        "unit/layout/test_gguf_blocks.py",
    ),
    "reading/stored_array.py": (
        "unit/reading/test_slices.py",
        "unit/reading/test_several_slices.py",
    ),
    "layout/lengths.py": (
        "unit/reading/test_file.py",
        "unit/reading/test_reader.py",
        "unit/test_iterating.py",
    ),
    "sharded/choosing.py": ("unit/test_folders.py", "remote/test_folders.py"),
    "sharded/folders.py": ("unit/test_folders.py", "remote/test_folders.py"),
    "sharded/index.py": ("unit/test_sharded.py",),
    "sharded/naming.py": ("unit/test_sharded.py", "unit/cli/test_sets.py"),
    "sharded/verifying.py": ("unit/test_sharded.py", "unit/cli/test_sets.py"),
    "sharded/uploading.py": ("remote/test_writing.py",),
    "sharded/finding.py": (
        "unit/test_sharded.py",
        "unit/cli/test_sets.py",
        "remote/test_google.py",
        "remote/test_folders.py",
    ),
    "sharded/objects.py": (
        "unit/test_sharded.py",
        "unit/cli/test_sets.py",
        "unit/test_hints.py",
        "unit/test_account.py",
    ),
    "sharded/saving.py": (
        "unit/test_sharded.py",
        "unit/cli/test_sets.py",
        "faults/test_power_loss.py",
    ),
    "sharded": ("unit/test_sharded.py", "unit/cli/test_sets.py"),
    "source/folders.py": ("remote/test_folders.py",),
    "source/hub_tree.py": ("remote/test_folders.py",),
    "source/later.py": ("unit/divided/test_opened.py",),
    "source/directory.py": ("unit/foreign/test_dcp.py",),
    "source/within.py": ("unit/foreign/test_dcp.py", "unit/foreign/test_keras.py"),
    "source/requested.py": ("unit/cli/test_verify.py",),
    "source/joined.py": (
        "unit/reading/test_shards.py",
        "unit/reading/test_tokens.py",
        "unit/divided/test_opened.py",
        "attacks/test_rights.py",
    ),
    "source/base.py": ("unit/source/test_local.py", "unit/source/test_memory.py"),
    "source/caching.py": ("unit/reading/test_caching.py",),
    "source/locking.py": (
        "attacks/test_locks.py",
        "unit/checkpoints/test_divided_steps.py",
        "unit/source/test_descriptor.py",
    ),
    "source/descriptor.py": ("attacks/test_descriptors.py",),
    "source/stream.py": ("unit/source/test_sink.py",),
    "source/gathering.py": ("unit/source/test_sink.py",),
    "source/targets.py": ("unit/source/test_sink.py", "attacks/test_planted.py"),
    "source/paths.py": ("attacks/test_paths.py",),
    "source/rights.py": ("attacks/test_rights.py",),
    "scipy.py": ("unit/test_tensor.py", "unit/test_frameworks.py"),
    "tensor": ("unit/test_tensor.py", "unit/layout/test_checkpoints.py"),
    "testing/builder_2.py": ("unit/container/test_v2.py",),
    "testing/strategies.py": ("property/test_files.py",),
    "torch/loading.py": ("unit/torch/test_values.py", "unit/torch/test_devices.py"),
    "torch/adapter.py": ("unit/torch/test_values.py", "unit/torch/test_devices.py"),
    "v2": ("unit/v2/test_programs.py",),
    "wire/cbor/form.py": ("unit/wire/test_form.py", "unit/wire/test_cbor.py"),
    "wire/cbor/decoding.py": (
        "unit/wire/test_cbor.py",
        "unit/wire/test_budget.py",
        "unit/wire/test_form.py",
        "property/test_cbor.py",
        "attacks/test_budget_manifests.py",
    ),
    "wire/cbor/values.py": (
        "unit/wire/test_cbor.py",
        "property/test_cbor.py",
        "unit/cli/test_attributes.py",
    ),
    "wire/cbor": ("unit/wire/test_cbor.py", "property/test_cbor.py"),
    "wire/json.py": ("attacks/test_budget_texts.py",),
    "writing/blob.py": ("unit/writing/test_writer.py",),
    "writing/canonical.py": ("unit/analysis/test_canonical.py",),
    "writing/creating.py": ("unit/writing/test_writer.py", "unit/writing/test_v2.py"),
    "writing/compressing.py": (
        "unit/writing/test_frames.py",
        "unit/writing/test_writer.py",
        "unit/writing/test_v2.py",
        "unit/encoding/test_zstd_seekable.py",
    ),
    "writing/copying.py": (
        "unit/writing/test_writer.py",
        "attacks/test_shared_blobs.py",
        "unit/edit/test_dividing.py",
        "unit/cli/test_convert.py",
        "unit/writing/test_frames.py",
    ),
    "writing/output.py": (
        "unit/edit/test_editor_2.py",
        "unit/writing/test_writer.py",
        "unit/writing/test_frames.py",
        "unit/cli/test_convert.py",
        "unit/edit/test_dividing.py",
    ),
    "writing/planning.py": (
        "unit/writing/test_writer.py",
        "unit/writing/test_rows.py",
        "unit/v2/test_programs.py",
    ),
    "writing/stream.py": ("unit/writing/test_writer.py",),
    "writing/writer.py": ("unit/writing/test_frames.py",),
    "writing/overlaps.py": ("attacks/test_shared_blobs.py",),
}


def files_for(module: Path) -> tuple[Path, ...]:
    """Return the test files of a module; none where nothing says so.

    Args:
        module: its path below `src/ztensor`.
    """
    if module.name in ("__init__.py", "__main__.py"):
        here = UNIT / module.parent
        return tuple(sorted(here.glob("test_*.py"))) if module.parent.name else ()
    own = UNIT / module.parent / f"test_{module.name}"
    if own.exists():
        return own, *(ROOT / "tests" / line for line in ELSEWHERE.get(module.as_posix(), ()))
    for place in (module, *module.parents):
        if lines := ELSEWHERE.get(place.as_posix()):
            return tuple(ROOT / "tests" / line for line in lines)
    return ()


def changed() -> list[Path]:
    """Return what differs from the last commit; where nothing does, what that one changed."""
    names = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    names = names or _git("diff", "--name-only", "HEAD~1", "HEAD")
    return [path for name in names if (path := ROOT / name).exists()]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def main() -> None:
    """Print the test files of what changed, and of the tree itself."""
    found = {UNIT / "test_tree.py"}
    for path in changed():
        if path.is_relative_to(SOURCE) and path.suffix == ".py":
            found.update(files_for(path.relative_to(SOURCE)))
        elif path.is_relative_to(ROOT / "tests") and path.name.startswith("test_"):
            found.add(path)
    print("\n".join(sorted(str(path.relative_to(ROOT)) for path in found)))


if __name__ == "__main__":
    main()
