"""Files of other formats, projected onto our `Manifest`: one file or folder a format.

`base.py` says what such a file gives, `parsing.py` asks for it. Behind it everything works on these
files as on our own: mapping, slices, verify, every framework, every verb. The table is `FORMATS` of
`formats/table.py`; a file's bytes decide, never its name. No format's library is needed to read it,
and nothing in a file is ever executed. A module that can also write its format has `export`.
"""
