"""The command `ztensor`: one function per verb, each thin over a plain function of the library.

Read `exits.py` (what the exit codes mean), `spelling.py` (how a value reads on a terminal and in
JSON, and the one function that makes a stranger's text safe to print), `terminal.py` (the one
place that prints), `options.py` (the options that several verbs take, and bundles of them),
`verb.py` (what every verb does around its work), then a verb. `choosing.py` has the patterns,
`changing.py` the commit and dry runs of verbs that change files, `rewriting.py` the account of
those that write new ones. `main.py` lists the verbs.

Nothing else in the library imports this room. A verb imports the library inside its function, so
that `ztensor --help` loads neither NumPy nor rich.
"""
