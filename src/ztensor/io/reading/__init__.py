"""Read objects, arrays and slices from an opened source.

Read the modules in this order:

- `manifests.py`: the checked manifest of a file; `component.py`: one component and the order of
  all checks; `places.py`: offsets of native raw tensors; `values.py`: objects as arrays and
  tensors; `file.py`: the objects of one file;
- `bulk.py`: many small tensors at once; `loading.py`: all objects of a file, or one object into
  memory of the caller; `reader.py`: the public class; `portable.py`: objects for another version;
- `selection.py`, `parts.py`, `stored_array.py`, `slices.py`: from an index to arrays;
- `verify.py`: every problem of a file; `walking.py`: of one object; `overlaps.py`: decodes or
  copies bytes that several objects share once; `recovery.py`: the last committed state of a torn
  file; `shards.py`: joins the shards of 2.x.

`io/opening.py` decides which arguments of `open` lead here.
"""
