"""Write objects to a sink: the mirror of `io/reading/`.

Read `options.py` first (how a component is stored), then `blob.py` (write one component), with
`frames.py` (compress it); `planning.py` (the manifest entry of an object, and its checks, before a
byte is written), `stream.py` (an object written in pieces), `copying.py` (components of another
file), `canonical.py` (each content once); `writer.py` (the public class), and `saving.py` (dicts).
"""
