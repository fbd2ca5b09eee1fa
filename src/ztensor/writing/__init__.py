"""Objects to one file: the mirror of `reading/`.

Read `planning.py` (what a caller passes, before a byte of it is written), `blob.py` (one
component), `canonical.py` (one of a file whose bytes its tensors decide), `copying.py` (one of
another file), `output.py` (objects and the file around them), `rows.py` (small ones one after the
other), `creating.py` (which begins one), `stream.py` (an object that comes in pieces), `writer.py`
(what users hold of all that), `saving.py` (a whole dict into one file). How bytes reach the disk is
the sink's, in `source/`.
"""
