"""Programs written for a released API, with their results on ours and on the wheel.

Nothing of this project is imported here, so that the environment of a wheel can run them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from typing import Any

import numpy as np

SAME = "the same"


@dataclasses.dataclass(frozen=True)
class Raises:
    """The result of a program that raises.

    Attributes:
        caught_by: name of a built-in exception that must catch it.
    """

    caught_by: str


@dataclasses.dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        name: the use it shows.
        run: takes the module.
        gives: its result.
        on_wheel: its result on the wheel, if that differs.
        heading: the row of the migration page that explains the difference.
        needs: a library it needs.
    """

    name: str
    run: Callable[[Any], Any]
    gives: Any
    on_wheel: Any = SAME
    heading: str = ""
    needs: str = ""

    def is_right_on_wheel(self, found: dict[str, Any]) -> bool:
        """Return whether an outcome is the one expected of the wheel."""
        return fits(self.gives if self.on_wheel is SAME else self.on_wheel, found)


class Programs(dict[str, Program]):
    """The programs of an API by name."""

    def add(self, name: str, run: Callable[[Any], Any], gives: Any, **more: Any) -> None:
        assert name not in self, name
        self[name] = Program(name, run, gives, **more)

    def program(self, gives: Any, **more: Any) -> Callable[[Callable[[Any], Any]], None]:
        """Keep a function as a program of its name."""

        def keep(run: Callable[[Any], Any]) -> None:
            self.add(getattr(run, "__name__", "").replace("_", " "), run, gives, **more)

        return keep


def plain(value: Any) -> Any:
    """Return a result as JSON can hold it; arrays and tensors with type and shape."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "tolist"):
        return [str(value.dtype), list(value.shape), value.tolist()]
    if isinstance(value, np.ndarray):
        return [value.dtype.name, list(value.shape), plain(value.tolist())]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"<{type(value).__name__}>"


def outcome(run: Program, zt: Any) -> dict[str, Any]:
    """Run a program; return `{"gives": ...}` or `{"raises": [names of the exception's bases]}`."""
    if run.needs and importlib.util.find_spec(run.needs) is None:
        return {"skipped": run.needs}
    try:
        return {"gives": plain(run.run(zt))}
    except Exception as error:  # noqa: BLE001  # whatever it raises is the answer
        return {"raises": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}


def fits(expected: Any, found: dict[str, Any]) -> bool:
    if isinstance(expected, Raises):
        return expected.caught_by in found.get("raises", ())
    return "gives" in found and json.dumps(plain(expected)) == json.dumps(found["gives"])
