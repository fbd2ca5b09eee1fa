"""Published tools for tests: of this library, and of whatever is built on it.

| file | gives |
| --- | --- |
| `builder.py` | a good file of any version, with one rule broken on request |
| `builder_2.py` | files of 2.x, from any content |
| `damage.py` | changes to bytes as values: flipped bits, cut ends, repeated and blanked ranges |
| `promise.py` | `exercise`: use any bytes as users do, and check the promise |
| `strategies.py` | hypothesis strategies for names, shapes, arrays, tensors, attributes and dicts |

Read them in this order. Only `strategies.py` needs hypothesis. Nothing else in the library imports
this package.
"""
