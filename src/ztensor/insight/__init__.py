"""What is in a model: numbers, pictures, differences and findings, and how they are shown.

Read `analysis/` (the tensors of files to one document), then how it is shown: `page/` (one HTML
file), `serving/` (the same page from a server on this machine) and `notebook/` (results as tables
without a script). `fleet/` looks at many files by any executor.
"""
