"""Objects to a sink: the mirror of `io/reading/`.

Read `blob.py` first (one component on its way out), with `compressing.py` and `frames.py` (its
frames) beside it; `canonical.py` (each content once), `planning.py` (what is wrong with an object,
before a byte is written), `copying.py` (components of another file), `stream.py`
(an object that comes in pieces); `draft.py` (what the manifest will say), `output.py` (how a file
begins and ends), `writer.py` (what users hold: objects, one after another), and `saving.py` (whole
dicts at once).
"""
