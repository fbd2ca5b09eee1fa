"""The command `ztensor`: one function per verb, each thin over a plain function of the library.

Read `exits.py` (exit codes), `spelling.py` (values as text and as JSON), `terminal.py` (the only
module that prints; it escapes text of files), `options.py` (options, and groups that several verbs
share), `parsing.py` (the command line, and help), `verb.py` (input files, errors and exit of any
verb), then a verb: its `OPTIONS`, and a function of a terminal and their values. `choosing.py` has
the patterns, `jobs.py` several files at once, `changing.py` the commit and dry run of verbs that
change files, `rewriting.py` and `folders.py` the work and the report of `convert`. `main.py` lists
the verbs.

Nothing else in the library imports this package. A verb imports the library inside its function, so
that `ztensor --help` loads no NumPy.
"""
