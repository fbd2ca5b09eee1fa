"""ONNX models: the tensors of all graphs, found by a walk over the protobuf fields.

No library is needed. Only tags and lengths of messages are read, so a model of gigabytes opens
without reading its weights. This is stricter than a protobuf parser: wrong wire types, duplicates
of singular fields, and groups are refused.

- `raw_data`, and packed floats of `float_data` and `double_data`, are byte ranges: mapped.
- `int32_data`, `int64_data` and `uint64_data` are decoded, as are 4-bit and 2-bit integers, which
  become int8 and uint8 with the ONNX type's name in the attribute `onnx.data_type`.
- External data is read from its file, which must be in the model's folder or a subfolder, or beside
  the target of a link to the model, as in the cache of the hub.
- Sparse initializers become `sparse_coo`.
- Strings, and external data of a model that has no path, are listed and refused when read.

All tensors of a model become objects. An initializer keeps its name. The tensor of a node
`Constant` has the name of the node's output, since some exporters put all weights there. A tensor
in another attribute is named `node.attribute`, by the node's name or else its first output, and
`node.attribute.0` in a list. Tensors of inner graphs have a path before their names:
`node.attribute.` for the branch of an `If` or the body of a `Loop`, `functions.domain.name.` for a
local function, `training.0.initialization.` and `training.0.algorithm.`. Tensors of the main graph
always keep their names; of two other tensors with the same name, the later in the file gets `#2`.

Versions, opsets, texts and `metadata_props` are the file's attributes. Nodes, inputs, outputs and
all other parts of a model are counted in the loss report.

`protobuf.py` reads fields, `tensors.py` a `TensorProto`. `storing.py` finds its elements in the
model or, by `external.py`, in other files; `encodings.py` decodes elements that are not native raw.
`projecting.py` walks a model, and `nodes.py` finds the nodes that it may skip.
"""

from ztensor.formats.onnx.projecting import project

__all__ = ["project"]
