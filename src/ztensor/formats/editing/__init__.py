"""Change files of other formats: a new file beside the old one, then an atomic rename.

`Format.editing` names the module of a format that can be changed. Its `HEADER` is a subclass of
`Header`: it parses a file's header, changes key-value pairs, and returns the bytes of a header for
other tensors. Everything else is the same for all formats:

- `header.py`: the contract of `Header`; `safetensors.py` and `gguf.py`: the two that there are.
- `plan.py`: a new file as a header, ranges of the old file and new tensors; it is written, then
  compared with the old file before it is put in place.
- `indexes.py`: the index of a model in several files, which an edit of one could make wrong.
- `editor.py`: `FormatEditor`, with the verbs of `ztensor.Editor`; `repairing.py`: gaps, bytes
  behind the last tensor, and tensors with missing bytes.
"""

from ztensor.formats.editing.editor import FormatEditor
from ztensor.formats.editing.header import Header, edited_format
from ztensor.formats.editing.repairing import Finding, FormatRepair, repair_format

__all__ = ["Finding", "FormatEditor", "FormatRepair", "Header", "edited_format", "repair_format"]
