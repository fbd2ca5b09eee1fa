"""What the tensors of files are like: ids, statistics, pictures, differences, times.

`identity.py` gives one id for the same tensors however they are stored. `streaming.py` cuts objects
into blocks of elements; `statistics.py` and `comparing.py` take such blocks, `plotting.py` draws
what the statistics found. `timing.py` says how long a file takes to read, beside the libraries of
`peers.py`. Files of any format that is read; nothing is ever written to them.
"""
