"""Dense tensors as planes: bytes of the same significance together, each plane in Huffman codes.

Weights of neural networks are compressed little by general methods, as the bits of the mantissas
are random. Their exponents are not: in a plane of their own they take a third of a byte. Read
`transforms.py` (elements to planes and back), `tail.py` (the index at the end of the bytes),
`encoding.py`, which the core calls, and `layout.py`, for objects of 1.x that are malformed.
"""
