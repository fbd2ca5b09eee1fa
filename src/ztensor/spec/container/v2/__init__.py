"""The manifest of 2.x, read and written (2.1 sections 3 and 7): one strict form, one schema.

| root | | |
| --- | --- | --- |
| `objects` | map: name to object | required |
| `attributes` | map | optional |
| `shards` | map: name of another file to `size` and `digest` | optional |

| object | | |
| --- | --- | --- |
| `shape` | array of u64 | required |
| `layout` | text | required: `dense`, or `namespace.name/version` |
| `parts` | map: name to part | required, not empty |
| `attributes` | map | optional |

| part | | |
| --- | --- | --- |
| `dtype` | text | required: one of twelve |
| `blob` | `[offset, length]` | required |
| `type`, `shard`, `digest` | text | optional |
| `encoding`, `decoded_length` | text, u64 | both or neither |

Read `words.py` (the words of 2.x for types, encodings and layouts), then `schema.py` (root, shards,
objects, extents of blobs). `emit.py` writes; it checks an object by parsing its own output.
"""
