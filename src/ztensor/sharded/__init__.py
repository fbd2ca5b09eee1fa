"""Models in several files: a set of them read as one mapping, and a dict written as such a set.

`naming.py` has the names and the sizes of shards, `index.py` what an index says, `finding.py` which
files a caller means, `reading.py` the reader over them, `saving.py` how a set is put in place. The
index is the one the Hugging Face hub has: `weight_map` tells the file of every object, and
`metadata` holds what else there is to say.
"""

from ztensor.sharded.finding import find_set
from ztensor.sharded.index import FileSet, read_index
from ztensor.sharded.naming import index_path, parse_size, plan_shards, shard_paths
from ztensor.sharded.reading import ShardedReader, load_files
from ztensor.sharded.saving import ShardSet, save_files

__all__ = [
    "FileSet",
    "ShardSet",
    "ShardedReader",
    "find_set",
    "index_path",
    "load_files",
    "parse_size",
    "plan_shards",
    "read_index",
    "save_files",
    "shard_paths",
]
