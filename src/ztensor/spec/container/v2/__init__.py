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

Read `schema.py` (the root, and what holds for all objects), `object.py` (one object and its
parts), `layouts.py` (which layout of ours a word of 2.x is) and `places.py` (where blobs may be).
`emit.py` writes, by the same words.
"""
