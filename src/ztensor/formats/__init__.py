"""Files of other formats, projected onto our `Manifest`: one file or folder a format.

`FORMATS` of `io/formats.py` names each, and that module says what one gives and asks for it. Behind
it everything works on these files as on our own: mapping, slices, verify, every framework, every
verb. `table.py` recognises formats; a file's bytes decide, never its name. `base.py` has what
several share, `saving.py` makes a file of a dict, `parts.py` has what all exports do, and
`ahead.py` lets other threads decode what will be written next. `within.py` is a file in another
one, `zip.py` and `deflate.py` archives and what is compressed, and `lookalikes.py` knows files that
hold no model. Each of `safetensors.py`, `npy.py`, `npz/`, `pt/`, `gguf/`, `hdf5/`, `keras.py` and
`onnx/` is a format; `dcp/` is a folder of files, whose pickle `pt/` reads. No format's library is
needed to read it, and nothing in a file is ever executed.
"""
