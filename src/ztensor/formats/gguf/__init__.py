"""GGUF: metadata, a table of tensors, and the tensors at aligned offsets.

Versions 2 and 3 are read, of either byte order; version 3 is written, little-endian. A tensor of
plain elements is a range of the file. So is a quantized tensor, as an object of a layout such as
`gguf.q4_k` with its blocks unchanged (`ztensor.quantization.gguf_blocks`). Types that ggml added or
removed later are listed and cannot be read. The same holds for blocks of big-endian files, since
nothing specifies which of their bytes are swapped.

Metadata becomes the file's attributes, under the same keys. The attribute `GGUF.types` has
`[key, type]` for each key in the order of the file, so that the same file can be written again;
keys of GGUF are lower case. A type is `u8` ... `f64`, `bool` or `str`; the type of an array is, for
example, `[u8]`, and the type of an array of arrays the list of their types. A string that is not
UTF-8 becomes bytes.

`types.py` has the numbers and words of types, `cursor.py` reads the header, `metadata.py` its keys;
`projecting.py` makes objects of the table of tensors. `exporting.py` writes.
"""

from ztensor.formats.gguf.exporting import export
from ztensor.formats.gguf.metadata import attributes_of_whole
from ztensor.formats.gguf.projecting import project
from ztensor.formats.gguf.types import TYPES

__all__ = ["TYPES", "attributes_of_whole", "export", "project"]
