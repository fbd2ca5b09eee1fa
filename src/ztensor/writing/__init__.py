"""Objects to one file: the mirror of `reading/`.

Read `planning.py` (what a caller passes, before a byte of it is written), `blob.py` (one
component), `writer.py` (objects and the file around them), `stream.py` (an object that comes in
pieces), `saving.py` (a whole dict into one writer). How bytes reach the disk is the sink's, in
`source/`.
"""
