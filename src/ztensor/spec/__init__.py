"""The zTensor format: from bytes to values and back. Nothing here opens, reads or writes a file.

Read it in the order of the specifications: `model/` (the content of a file, in any version),
`wire/` (CBOR), `container/` (a manifest of each version to the model, and back), `digest.py`,
`encoding/` (stored bytes to decoded bytes, and back) and `layout/` (decoded components to arrays).
"""
