"""Nested training states in files, and the steps of a run.

Read `tree/` (a nested state to leaves and columns of plain values, and back; no files), `states.py`
(the same to files and back) and `checkpoints/` (the steps of a run in a folder). `torch_tree.py`
and `jax_tree.py` say which types of these libraries a tree keeps, `torch_randomness.py` what
torch's random generators are in.
"""
