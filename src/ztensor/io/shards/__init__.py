"""Sets of files: read several shards as one mapping, and save a dict as shards with an index.

- `naming.py`: names of shards, and the distribution of objects to shards;
- `index.py`: parse an index; `finding.py`: find the files for an index, folder, list or URL;
- `objects.py`: the objects of a set; `verifying.py`: check all bytes of a set;
- `saving.py`: save a dict as a set, and replace an earlier one.

The index has the format of the Hugging Face hub: `weight_map` maps object names to files,
`metadata` holds everything else.
"""
