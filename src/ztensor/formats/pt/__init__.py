"""What `torch.save` writes, read without torch; nothing of a pickle is ever executed.

`projecting.py` finds the pickle in an archive, a tar or a bare file; `pickle_reader.py` reads it
(`pickle_machine.py` is what its instructions do, `pickled.py` is what they make); `vocabulary.py`
is the closed table of what it may call, `values.py` what those calls give; `objects.py` turns
tensors into objects, with `encodings.py` for those whose elements are no run of the file.
"""

from ztensor.formats.pt.projecting import project

__all__ = ["project"]
