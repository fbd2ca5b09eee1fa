"""What the tensors of files are like: ids, statistics, pictures, differences, findings.

`identity.py` gives one id for the same tensors however they are stored, `content.py` the bytes of
which 2.x has one, whose form `canonical.py` checks. `parameters.py` counts, and `summary.py` has
one object in short. `streaming.py` cuts objects into blocks of elements; `statistics.py` and
`pairs.py` take such blocks, and hand them to what adds them up: `sums.py`, `counters.py`,
`spreads.py`, `channels.py` and `tally.py`. `comparing.py` has all pairs of two files. `slicing.py`
and `singular.py` look at one matrix of a tensor. `plotting.py` draws what the statistics found.
`insight.py` puts all of this together for one model, with roles and layers
(`roles.py`), what a training state says of itself (`states.py`) and rules for what is odd
(`findings.py`), and `beside.py` for two; both are begun by `examining.py`. `document.py` writes it
down, and `conditions.py` compares it with what must not be. Files of any format that is read;
nothing is ever written to them.
"""
