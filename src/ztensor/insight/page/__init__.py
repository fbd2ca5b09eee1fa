"""The page: what was seen of a model, as one file that any browser opens.

`packing.py` makes the document of `insight/analysis/` small, within a budget; `report.py` puts it
together with the page's own text, style and script, which lie in `static/` and are taken as they
are: there is no build step, and no library. The script is several files, joined in the order of
`report.py`. `inline.py` is the page in a frame of a notebook. The page reads the document and
nothing else; nothing here reads tensors. Nothing of a model is ever part of the page's code: it is
data, packed so that no name can end the block it lies in.
"""
