"""How files, tensors and results show themselves in a notebook: as tables, without a script.

A class that inherits `Shown` of `interactive.py` is shown as a *sheet*: a title, facts and tables,
all of them plain values. `sheet.py` turns a sheet into HTML, and is the only place that knows HTML:
every text is escaped there as everywhere in this library, lengths are bounded, and styles are
decoration only, so that a sheet reads well where styles are stripped. `makers.py` has one table,
from classes to the functions of `files.py`, `values.py`, `results.py` and `runs.py` that make their
sheets.

A sheet is made of what is known already: no function here reads data of a tensor, and none asks a
network. What is wrong with a closed or changed file is said in the sheet; showing never raises.

The frame with the whole page of a model, `ztensor.view`, is in `insight/page/`.
"""
