"""`ztensor view`: the page of a model from this machine, everything computed when it is looked at.

`model.py` is what is looked at: one model or two, opened, and the questions a page asks of them.
`work.py` runs what takes long: few at once, each with a deadline, each ended when nobody waits for
it any more. `guard.py` refuses whatever does not come from the page itself. `connections.py` bounds
what connections that say nothing may hold. `answers.py` puts them together; it and `connections.py`
alone import a server's library. `server.py` has the address, which is there before that is loaded.
`watching.py` says whether the files are still those that were opened.

The page is that of `insight/page/`; `live_page` tells it that it may ask. A page without a server,
as a notebook shows it in a frame, is `page.report.html_of`.

What may be asked, below `/<token>/`; all by GET, answers are JSON:

    (nothing)               the page
    alive                   a stream that ends with the page
    tensor/MODEL/INDEX      its numbers, histogram, map, findings
    pair/ROW                how the tensors of a row of two models differ
    slice/MODEL/INDEX       ?rows=&columns=&at=&top=&bottom=&left=&right=  a map of a part
    singular/MODEL/INDEX    singular values
    examine                 everything; a stream of lines, the last one says that the page has it

MODEL is 0 or 1, INDEX and ROW are places in the document. No name and no path is ever taken.
"""
