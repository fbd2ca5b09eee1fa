"""Functions over many files, by any executor; `ztensor.fleet` has their public names.

An executor is what `concurrent.futures` calls one: a pool of threads or processes, Dask's
`Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`, loky's. What it is sent is a function of
this package, a path and plain options, and what comes back is a report: no bytes of a file travel.
Each file is done by one thread, since files are what is done side by side.

    with ztensor.fleet.Processes() as pool:
        for path, found in ztensor.fleet.verify_files(paths, executor=pool):
            ...

Read `verbs.py` (the functions, and what is sent to a worker), `running.py` (few files ahead, each
with one result), `naming.py` (where new files go), and `processes.py` (worker processes that go on
where one dies).
"""
