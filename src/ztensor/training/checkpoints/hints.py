"""Names of other libraries' managers, and the method to call here instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

HINTS = {
    **dict.fromkeys(
        ("load", "load_checkpoint", "restore_latest", "resume"),
        "restore() gives the newest step that can be read, restore(step=100) that one",
    ),
    **dict.fromkeys(("all_steps", "list"), "steps() has the numbers"),
    **dict.fromkeys(("latest_step", "last"), "latest() has the number of the newest step"),
    **dict.fromkeys(("save_checkpoint", "step"), "save(step, state) saves one"),
    "wait_until_finished": "wait() waits for the save in the background",
}


class Hinted:
    """Names the method to call if a name of another library is looked up."""

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in HINTS:
                raise AttributeError(f"{message}; {HINTS[name]}")
            raise AttributeError(message, name=name, obj=self)
