"""Deltas: files with the difference of two states of a model, element by element.

Read `states.py` (tensors and ids of a state), `comparing.py` and `making.py` (two states to a
file), `changes.py` (what every dialect is read into), `file.py` (the delta as a zTensor file),
`stream.py` (its bytes) and `chain.py` (deltas in order).
"""
