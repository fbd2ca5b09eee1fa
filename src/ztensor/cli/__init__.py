"""The command `ztensor`: one file per verb, each thin over a plain function.

Read `exits.py` (what the exit codes mean), `spelling.py` (how a value reads on a terminal and in
JSON, and the one function that makes a stranger's text safe to print), `terminal.py` (the one
place that prints), `verb.py` (what every verb does around its work), then a verb. Verbs that
change files share `changing.py` (options, the commit, dry runs), those that write new ones
`rewriting.py`. `main.py` lists the verbs.

Nothing else in the library imports this room. A verb imports the library inside its function, so
that `ztensor --help` loads neither NumPy nor rich.
"""
