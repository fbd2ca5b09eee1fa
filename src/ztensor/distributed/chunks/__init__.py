"""Assemble tensors from chunks in one file or many when they are read.

A *chunk* is one box of a tensor with the place of its bytes. `boxes.py` is the arithmetic of boxes:
which overlap, whether they fill a shape. `table.py` holds the chunks of many tensors as columns, so
that a million chunks do not take a million objects. `assembling.py` fills memory with a tensor, or
a box of it, from the chunks that overlap, and `encoding.py` is the encoding that readers use for
it; `staging.py` has its memory and `sums.py` its digests.

No format is known here: `distributed/` makes tables of our own checkpoints, modules of `formats/`
of other ones.
"""
