"""Analysis of tensors: ids, statistics, pictures, differences, findings.

`identity.py` computes ids that do not depend on storage, `content.py` the content digest of 2.x,
and `canonical.py` checks the canonical form. `parameters.py` counts, `summary.py` summarizes one
object. `streaming.py` cuts objects into blocks of elements; `statistics.py` and `pairs.py` feed
them to the accumulators `sums.py`, `counters.py`, `spreads.py`, `channels.py` and `tally.py`.
`comparing.py` compares two files. `slicing.py` and `singular.py` analyse a matrix of a tensor.
`plotting.py` draws statistics.

`insight.py` combines these for one model, with roles and layers (`roles.py`), the values of a
training state (`states.py`) and rules (`findings.py`), and `beside.py` for two models; both are
called by `examining.py`. `document.py` converts the result to JSON, and `conditions.py` tests it.
Files of any readable format; no file is ever written to.
"""
