"""Files of `torch.save`, read without torch; nothing of a pickle is ever executed.

`projecting.py` finds the pickle in an archive or a bare file; `pickle_reader.py` reads it, with the
instructions of `pickle_machine.py` and the values of `pickled.py`. `vocabulary.py` is the closed
table of calls, `values.py` has their results. `objects.py` turns tensors into objects, with
`encodings.py` for numbers in the pickle itself and conditions for views.
"""

from ztensor.formats.pt.projecting import project

__all__ = ["project"]
