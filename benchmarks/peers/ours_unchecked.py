"""This checkout without digests: none written, none checked, as most peers work."""

from __future__ import annotations

import functools

from benchmarks.peers import ours

BFLOAT16 = ours.BFLOAT16
LACKS = {
    "save_crc32c": "a row of its own",
    "save_sha256": "a row of its own",
    "verify": "nothing to check",
    "each_described": "as with digests",
    **dict.fromkeys(
        ("START", "IMPORT", "OPEN_ONE", "LOAD", "LS", "VERIFY", "again"), "as with digests"
    ),
}

keys = ours.keys
one = functools.partial(ours.one, verify=False)
mapped = functools.partial(ours.mapped, verify=False)
owned = functools.partial(ours.owned, verify=False)
each = functools.partial(ours.each, verify=False)
each_owned = functools.partial(ours.each_owned, verify=False)
each_slice = functools.partial(ours.each_slice, verify=False)
slices = functools.partial(ours.slices, verify=False)
save = functools.partial(ours.save, checksum=None)
save_zstd = functools.partial(ours.save_zstd, checksum=None)
append = functools.partial(ours.append, checksum=None)
