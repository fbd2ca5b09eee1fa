"""ONNX models: the tensors of all graphs, found by a walk over the protobuf fields.

No library is needed: of a message only tags and lengths are read, so a model of gigabytes opens
without reading its weights. The walk is stricter than a protobuf parser: a field of the wrong wire
type, a field twice that may be there once, and groups are refused.

- `raw_data`, and packed floats of `float_data` and `double_data`, are byte ranges: mapped.
- `int32_data`, `int64_data` and `uint64_data` are decoded, as are 4-bit and 2-bit integers, which
  become int8 and uint8 with the ONNX type's name in the attribute `onnx.data_type`.
- External data is read from its file, which must lie beneath the model's folder, or beside what
  the model is a link to, as in the cache of the hub.
- Sparse initializers become `sparse_coo`.
- Strings, and external data of a model that has no path, are listed and refused when read.

Objects are all tensors of a model. Initializers have their own names, and what a node `Constant`
holds has the name of the node's output: some exporters put all weights there. A tensor in another
attribute is `node.attribute`, `node` its name or else that of its first output; one of a list
has its place behind that. What is in a graph below has the path to it before its name:
`node.attribute.` for the branch of an `If` or the body of a `Loop`, `functions.domain.name.` for a
local function, `training.0.initialization.` and `training.0.algorithm.`. Tensors of the main graph
keep their names whatever is below; of two others with one name the later in the file gets `#2`.

Versions, opsets, texts and `metadata_props` are the file's attributes. Nodes, inputs, outputs and
whatever else is in a model is counted, and is in the account of what is not given.

`protobuf.py` reads fields, `tensors.py` a `TensorProto`, `storing.py` finds its elements, in the
model or by `external.py` in other files, and `encodings.py` decodes those that are not native raw;
`projecting.py` walks a model, and `nodes.py` says which nodes it may pass over.
"""

from ztensor.formats.onnx.projecting import project

__all__ = ["project"]
