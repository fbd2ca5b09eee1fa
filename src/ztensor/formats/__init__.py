"""Files of other formats, projected onto our `Manifest`: one file or folder a format.

`FORMATS` of `io/formats.py` names each format, and defines the contract of its module.
Then everything works on these files as on our own: mapping, slices, verify, every framework, every
verb. `table.py` recognises formats by a file's bytes, never by its name. Shared by several formats:

- `base.py`: encodings that decode block by block, and what cannot be read.
- `gathered.py`: arrays whose elements are in another order, have gaps, or are deflated.
- `zip.py`, `deflate.py`: archives and compressed streams; `within.py`: a file inside another one.
- `parts.py`, `ahead.py`: what all exports do; other threads decode what is written next.
- `editing/`: changes of finished safetensors and GGUF files.
- `saving.py`: a dict as a file of a format. `lookalikes.py`: files that hold no model.

Each of `safetensors/`, `npy.py`, `npz/`, `pt/`, `gguf/`, `hdf5/`, `keras.py` and `onnx/` is a
format; `dcp/` is a folder of files, whose pickle `pt/` reads. No format's library is needed to read
it, and nothing in a file is ever executed.
"""
