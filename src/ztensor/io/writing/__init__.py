"""Objects to a sink: the mirror of `io/reading/`.

Read `options.py` first (how a component is stored), then `blob.py` (one component on its way out),
with `frames.py` (its frames) beside it; `planning.py` (what the manifest will say, and what is
wrong with an object, before a byte is written), `stream.py` (an object that comes in pieces),
`copying.py` (components of another file), `canonical.py` (each content once); `writer.py` (what
users hold: objects, one after another), and `saving.py` (whole dicts at once).
"""
