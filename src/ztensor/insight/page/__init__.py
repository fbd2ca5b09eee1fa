"""The page of a model: one HTML file for any browser.

`packing.py` compresses the document of `insight/analysis/` to a budget; `report.py` combines it
with the page's text, style and script of `static/`, which are used as they are: without a build
step or a library. The script is several files, joined in the order of `report.py`. `inline.py` is
the page in a frame of a notebook. The page reads only the document; nothing here reads tensors.
Data of a model is never part of the page's code: no name can end the block of data.
"""
