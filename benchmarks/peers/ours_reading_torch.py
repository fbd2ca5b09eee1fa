"""This checkout by `ztensor.torch`, reading the file that another library wrote."""

from __future__ import annotations

from benchmarks.peers import ours_reading, ours_torch

LACKS = ours_torch.LACKS

from_numpy, to_numpy = ours_torch.from_numpy, ours_torch.to_numpy
save, keys = ours_torch.save, ours_reading.keys
one, mapped, owned = ours_torch.one, ours_torch.mapped, ours_torch.owned
