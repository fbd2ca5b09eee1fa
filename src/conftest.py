"""Leave the modules of frameworks that are not installed out of the doctests.

An option of pytest does that too, and hides every test module that fails to be imported.
"""

from __future__ import annotations

import importlib.util

_NEEDS = {
    "torch": "torch", "jax": "jax", "flax.py": "jax",
    "distributed/torch": "torch", "distributed/jax.py": "jax",
    "training/torch_tree.py": "torch", "training/torch_randomness.py": "torch",
    "training/jax_tree.py": "jax",
    "accelerate.py": "torch", "lightning.py": "torch", "trainer.py": "torch",
    "transformers.py": "torch", "diffusers.py": "torch", "peft.py": "torch",
    "vllm.py": "vllm", "xarray.py": "xarray",
}  # fmt: skip

collect_ignore = [
    f"ztensor/{module}"
    for module, library in _NEEDS.items()
    if importlib.util.find_spec(library) is None
]
