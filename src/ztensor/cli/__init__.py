"""The command `ztensor`: one function per verb, each thin over a plain function of the library.

Read `exits.py` (what the exit codes mean), `spelling.py` (how a value reads on a terminal and in
JSON), `terminal.py` (the one place that prints, and makes a stranger's text safe to print),
`options.py` (an option, and those that several verbs take), `parsing.py` (words to options, and
help), `verb.py` (what every verb does around its work), then a verb: its `OPTIONS`, and a function
of a terminal and their values. `choosing.py` has the patterns, `jobs.py` several files at once,
`changing.py` the commit and dry runs of verbs that change files, `rewriting.py` and `folders.py`
what `convert` does and tells. `main.py` lists the verbs.

Nothing else in the library imports this package. A verb imports the library inside its function, so
that `ztensor --help` loads no NumPy.
"""
