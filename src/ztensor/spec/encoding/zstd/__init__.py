"""`zstd`: one or more Zstandard frames (RFC 8878), decoded straight into the destination.

Read `frames.py` first: it walks frame and block headers and finds, without decoding, the extent,
the maximum decoded length and the window of each frame. `libraries.py` adapts the installed zstd
library; `codec.py` joins both to the encoding.
"""
