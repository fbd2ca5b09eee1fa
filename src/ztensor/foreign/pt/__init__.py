"""What `torch.save` writes, read without torch; nothing of a pickle is ever executed.

`projecting.py` finds the pickle in an archive, a tar or a bare file; `pickle_reader.py` reads it;
`values.py` says what may be in it; `objects.py` turns its tensors into objects.
"""

from ztensor.foreign.pt.projecting import project

__all__ = ["project"]
