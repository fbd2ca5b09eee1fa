"""`zstd`: one or more Zstandard frames (RFC 8878), decoded straight into the destination.

To read in this order: `frames.py` steps through frame and block headers and knows, without
decoding, where each frame lies, how much it can decode to and which window it demands;
`libraries.py` is the seam to whichever library is installed; `codec.py` joins them to the
encoding.
"""
