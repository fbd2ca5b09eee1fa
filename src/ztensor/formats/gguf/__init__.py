"""GGUF: metadata, a table of tensors, and behind them the tensors, each at a multiple of a number.

Versions 2 and 3 are read, of either byte order; version 3 is written, little-endian. A tensor of
plain elements is a range of the file. A quantized one is too, as an object of a layout such as
`gguf.q4_k`, which has its blocks as they are (`ztensor.quantization.gguf_blocks`). Types that ggml
has given a number to since, or taken it from, are listed and cannot be read; nor can blocks of
big-endian files, since no text says which of their bytes are swapped.

Metadata becomes the file's attributes, under the same keys. `GGUF.types`, which is no key of GGUF
since these are in small letters, has `[key, type]` for each in the order of the file, so that a
file can be written again as it was. A type is `u8` ... `f64`, `bool` or `str`; that of an array is
`[u8]`, and that of an array of arrays the list of theirs. A string that is no UTF-8 comes as bytes.

`types.py` has the numbers and words of types, `cursor.py` a place in the header, `metadata.py` what
keys say; `projecting.py` makes objects of the table of tensors. `exporting.py` writes.
"""

from ztensor.formats.gguf.exporting import export
from ztensor.formats.gguf.metadata import attributes_of_whole
from ztensor.formats.gguf.projecting import project
from ztensor.formats.gguf.types import TYPES

__all__ = ["TYPES", "attributes_of_whole", "export", "project"]
