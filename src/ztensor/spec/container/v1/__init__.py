"""The manifest of 1.1 and 1.2: one container, one schema (1.2 section 1, 1.1 part II).

1.2 added optional fields and logical types to 1.1 and changed the spelling of fp8 and complex.
Appending libraries keep an old version text and add new fields, so a reader takes both spellings
in every file and looks at the version text for its major number only. What is written differs,
and that is the two emitters at the end.

| root | 1.1 | 1.2 |
| --- | --- | --- |
| `version` text, `attributes` map, `objects` map | yes | yes |
| `commit` map, last: `prev`, `end`, `digest` | ours, ignorable | ours, ignorable |

| component | 1.1 | 1.2 |
| --- | --- | --- |
| `dtype`, `offset`, `length`, `encoding`, `digest` | yes | yes |
| `type`, `uncompressed_length` | dtype words `f8_e4m3` ... instead; none | yes |

`schema.py` reads the manifest. `commit.py` is the record that guards
the manifest; `emit.py` writes both versions.
"""
