"""Files of other formats, projected onto our `Manifest`: one file or folder a format.

`FORMATS` of `io/formats.py` names each, and that module says what one gives and asks for it. Behind
it everything works on these files as on our own: mapping, slices, verify, every framework, every
verb. `table.py` recognises formats; a file's bytes decide, never its name. `base.py` has what
several share, `saving.py` makes a file of a dict, `parts.py` has what all exports do, and
`ahead.py` lets other threads decode what will be written next. `dcp/` is a folder of files, whose
pickle `pt/` reads. No format's library is needed to read it, and nothing in a file is ever
executed.
"""
