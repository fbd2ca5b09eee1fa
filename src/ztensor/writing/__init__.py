"""Objects to one file: the mirror of `reading/`.

Read `blob.py` (one component), `writer.py` (objects and the file around them), `saving.py` (a whole
dict into one writer). How bytes reach the disk is the sink's, in `source/`.
"""
