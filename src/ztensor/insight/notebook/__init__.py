"""The display of files, tensors and results in notebooks: tables without a script.

A class that inherits `Shown` of `interactive.py` is shown as a *sheet*: a title, facts and tables
of plain values. `sheet.py` converts a sheet to HTML, and is the only module with HTML: it escapes
every text and bounds lengths; styles are decoration only. `makers.py` maps classes to the functions
of `files.py`, `values.py`, `results.py` and `runs.py` that make their sheets.

Sheets are made without I/O: no function here reads data of a tensor or uses a network. A sheet of a
closed or changed file says so; showing never raises.

The frame with the whole page of a model, `ztensor.view`, is in `insight/page/`.
"""
