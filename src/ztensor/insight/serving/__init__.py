"""The local server of `ztensor view`: the page of a model, computed on demand.

`model.py` has one open model or two, and computes the answers of a page. `work.py` runs longer
work: few jobs at once, each with a deadline, each stopped when its client has gone. `guard.py`
refuses requests that do not come from the page. `connections.py` bounds idle connections.
`answers.py` combines them; only it and `connections.py` import a server's library. `server.py` has
the socket, which is open before that library is loaded. `watching.py` detects changed files.

The page is the one of `insight/page/`; `live_page` allows it to send requests. A page without a
server, as in the frame of a notebook, is `page.report.html_of`.

Requests, below `/<token>/`; all by GET, answers are JSON:

    (nothing)               the page
    alive                   a stream that ends with the page
    tensor/MODEL/INDEX      its numbers, histogram, map, findings
    pair/ROW                how the tensors of a row of two models differ
    slice/MODEL/INDEX       ?rows=&columns=&at=&top=&bottom=&left=&right=  a map of a part
    singular/MODEL/INDEX    singular values
    examine                 everything; a stream of lines with the progress

MODEL is 0 or 1, INDEX and ROW are indices in the document. Requests contain neither names nor
paths.
"""
