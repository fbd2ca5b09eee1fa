"""Conversion: other formats, other versions, other encodings, shards.

| module | function |
| --- | --- |
| `conversion.py` | `convert`: a new file, or a set of shards |
| `merging.py` | `merge`: one file of several |
| `folders.py` | `convert_folder`: the folder of a model |
| `splitting.py` | `split`: shards, planned by `planning.py`; `dividing.py` writes shards of 2.1 |
| `migration.py` | `migrate`: a zTensor file rewritten, in place or beside |

Stored bytes are copied as they are where possible, in blocks of bounded size. A finished file is
read back and compared, where that is asked, before it replaces the target atomically.

Reading order: `settings.py` (options), `source.py` (inputs), `versions.py` and `losses.py` (the
content that a target can hold, and the loss report), `trees.py` (nested states), `casting.py` and
`quantizing.py` (other elements), `rules.py`, `recipe.py` and `arranging.py` (other names and
shapes), `copying.py` (one file), `checking.py` (the comparison), `files.py` (one file, or shards
and their index), `atomic_folder.py`, `report.py` (the result).
"""

from ztensor.converting.conversion import convert
from ztensor.converting.folders import FolderReport, convert_folder
from ztensor.converting.merging import merge
from ztensor.converting.migration import migrate
from ztensor.converting.recipe import Recipe, RecipeRow
from ztensor.converting.report import ConversionReport, Loss
from ztensor.converting.rules import Pattern
from ztensor.converting.splitting import split

__all__ = [
    "ConversionReport",
    "FolderReport",
    "Loss",
    "Pattern",
    "Recipe",
    "RecipeRow",
    "convert",
    "convert_folder",
    "merge",
    "migrate",
    "split",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
