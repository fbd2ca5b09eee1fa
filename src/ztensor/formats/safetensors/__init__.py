"""safetensors: a JSON header, followed by the elements without gaps, little-endian.

As strict as the format's own library, and stricter where the format's text is and no writer
differs: duplicate names, blanks before the header, a list in place of an object. Every tensor is a
range of the file, so all of them are mapped. The header is parsed in parts: the memory of a part's
JSON is charged before the part is parsed, and released after it.

Elements of types that came after this release are listed and not read.

`types.py` has the words of types; `projecting.py` reads a header, `exporting.py` writes one.
"""

from ztensor.formats.safetensors.exporting import export
from ztensor.formats.safetensors.projecting import project

__all__ = ["export", "project"]
