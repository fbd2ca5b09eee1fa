"""The command `ztensor`, and the list of its verbs.

A verb's module is loaded when the verb is called. The help of the whole command, and a shell that
completes it, need only the list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import ztensor
from ztensor.cli.exits import ExitCode
from ztensor.errors import UnsupportedError, near_names
from ztensor.ext import Registry
from ztensor.installation import mixture

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(NamedTuple):
    """A verb of the command.

    Attributes:
        summary: the first sentence of its docstring; a test compares them.
        place: its module and function, such as `package.module:function`; by default the function
            of its name in the module `ztensor.cli.NAME`.
    """

    summary: str
    place: str = ""


# A new verb is a function with its options and a line here.
VERBS: dict[str, dict[str, Verb]] = {
    "Look into files of any format": {
        "ls": Verb("List the objects of files: names, shapes, types, sizes."),
        "info": Verb("Show a file as a whole: version, sizes, attributes."),
        "show": Verb("Show one object: its parts, attributes and first values."),
        "verify": Verb("Check every byte of files, and list all that is wrong."),
        "stats": Verb("Show statistics of the values, and find NaN and infinity."),
        "plot": Verb("Draw histograms in the terminal, or as SVG or PNG."),
        "diff": Verb("Compare two files, whatever their formats."),
        "report": Verb("Write one page that shows a model, or two beside each other."),
        "view": Verb("Look at a model in the browser, computed on demand."),
        "hash": Verb("Print an id of the contents, independent of the storage."),
        "ckpt": Verb("List, check or remove the steps of a training run."),
        "delta": Verb("Make, apply, list, fold and check differences of states."),
    },
    "Write new files": {
        "convert": Verb("Write a file in another format, version or compression."),
        "merge": Verb("Write the objects of several files into one .zt."),
        "split": Verb("Write a file as shards of limited size, and an index."),
        "sign": Verb("Sign a file or all files of a folder."),
    },
    "Change .zt files, safely": {
        "append": Verb("Add objects of other files, of any format."),
        "replace": Verb("Put another array under a name."),
        "rm": Verb("Remove objects."),
        "mv": Verb("Rename objects."),
        "set": Verb("Set and remove attributes, of a file or of an object."),
        "compact": Verb("Free the bytes of removed and replaced data."),
        "repair": Verb("Find the last complete state of a torn file, and save it."),
    },
    "Try another reader": {
        "conformance": Verb("Test a reader of .zt files on a corpus of valid and invalid ones."),
    },
    "Teach the shell": {
        "completions": Verb("Print a script that completes verbs, options and names."),
    },
}

# Names of verbs in other commands.
_MEANT = {
    **dict.fromkeys(("cat", "head", "print"), "show"),
    **dict.fromkeys(("delete", "remove"), "rm"),
    "check": "verify",
    "inspect": "info",
    "list": "ls",
    "rename": "mv",
}

# Replacements of verbs that were removed.
_GONE = {
    "bench": "`python -m timeit -s 'from ztensor.numpy import load_file' 'load_file(\"FILE\")'`",
    "browse": "`ztensor view MODEL`, or `ztensor ls MODEL` for its names",
    "compress": "`ztensor convert FILE --in-place --compression zstd`",
    "decompress": "`ztensor convert FILE --in-place --compression raw`",
    "demo": "`make demo` in the sources, or `python examples/demo.py`",
    "export": "`ztensor convert IN OUT.safetensors`",
    "migrate": "`ztensor convert FILE --in-place --version VERSION`",
}

HELP = """\
Look into any model file, check it, compare it, convert it; change .zt, .safetensors
and .gguf files.

Files may be .zt, .safetensors, .keras, .npz, .npy, .distcp, .pt, .pth, .bin, .ckpt, .gguf, .h5, \
.hdf5 and .onnx, or a model in several such files. The contents decide the format, not the name, \
and nothing in a file is ever executed. An object is one named tensor.

Examples:
  $ ztensor ls tiny.safetensors
    the tensors in a file, with shapes, types and sizes
  $ ztensor convert tiny.safetensors tiny.zt
    the same tensors in another format; the first file does not change
  $ ztensor diff tiny.safetensors tiny.zt
    compare the two: nothing was lost

`ztensor VERB --help` describes a verb, with examples.
"""


# The function of a plugin's verb; its module has `OPTIONS`, and its docstring is its help.
PLUGINS: Registry[str, Callable[..., None]] = Registry({}, group="ztensor.verbs", kind=Callable)


def find(name: str) -> Verb | None:
    """Return a verb of the list or of a plugin, or None.

    Raises:
        UnsupportedError: the plugin that has the name is broken.
    """
    for verbs in VERBS.values():
        if name in verbs:
            return verbs[name]
    try:
        return _verb_of(PLUGINS[name])
    except KeyError:
        return None


def _verb_of(function: Callable[..., None]) -> Verb:
    summary = (function.__doc__ or "").strip().partition("\n")[0]
    return Verb(summary, f"{function.__module__}:{function.__name__}")


def _groups() -> dict[str, dict[str, Verb]]:
    """Return the list and the verbs of plugins that can be loaded."""
    plugins = {name: _verb_of(function) for name, function in PLUGINS.usable()}
    return {**VERBS, **({"Of other packages": plugins} if plugins else {})}


def _overview() -> str:
    """Return the help of the whole command."""
    from ztensor.cli.parsing import EXIT_CODES, filled

    groups = _groups()
    width = max(len(name) for verbs in groups.values() for name in verbs)
    lists = [
        "\n".join(
            [f"{title}:", *(f"  {name:{width}}  {verb.summary}" for name, verb in verbs.items())]
        )
        for title, verbs in groups.items()
    ]
    options = "Options:\n  --version   Show the version.\n  -h, --help  Show this text."
    usage = "Usage: ztensor VERB [OPTIONS] ARGUMENTS"
    return "\n\n".join([usage, filled(HELP), *lists, options, EXIT_CODES]) + "\n"


def _explain(word: str) -> str:
    """Return why a word is not a verb, and a replacement."""
    if word in _GONE:
        return f"{word!r} was removed; type {_GONE[word]}"
    if os.path.lexists(word):
        return "a file comes after a verb, as in `ztensor ls FILE`"
    near, _ = near_names(word, [name for verbs in VERBS.values() for name in verbs])
    meant = _MEANT.get(word, near[0] if near else None)
    kind = "option" if word.startswith("-") else "verb"
    hint = f"did you mean {meant!r}?" if meant else "`ztensor help` lists all"
    return f"there is no {kind} {word!r}; {hint}"


def _run(words: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    if not words:
        print(_overview(), end="")
        return ExitCode.USAGE
    first, *rest = words
    if first in ("-h", "--help", "help"):
        if not rest:
            print(_overview(), end="")
            return ExitCode.OK
        first, rest = rest[0], ["--help"]
    if first == "--version":
        print(f"ztensor {ztensor.__version__}")
        return ExitCode.OK
    from ztensor.cli.parsing import load
    from ztensor.cli.terminal import Terminal
    from ztensor.cli.verb import call

    terminal = Terminal()
    terminal.hide(words)
    try:
        verb = find(first)
    except UnsupportedError as error:
        terminal.error(error)
        return ExitCode.FAILED
    if verb is not None:
        return call(load(first, verb.place), rest)
    terminal.note(f"error: {_explain(first)}")
    return ExitCode.USAGE


def _open_missing_streams() -> None:
    """Open standard streams that are closed.

    Use of input or output then fails, as on a full disk. Messages are dropped. No file that a verb
    opens gets their descriptors.
    """
    for name, flags, mode in (
        ("stdin", os.O_WRONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, flags)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8"))  # noqa: SIM115


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `SystemExit` carries the exit code.

    Args:
        arguments: the words after `ztensor`; by default from `sys.argv`.
    """
    _open_missing_streams()
    if "_ARGCOMPLETE" in os.environ:
        from ztensor.cli.completions import complete

        complete((name, *verb) for verbs in _groups().values() for name, verb in verbs.items())
    mixed = mixture()
    if mixed is not None:  # printed on each call: the next change to the installation breaks it
        print(mixed.message, file=sys.stderr)
        if mixed.is_broken:
            raise SystemExit(ExitCode.FAILED)
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except OSError as error:
        from ztensor.cli.verb import code_without_output

        code = code_without_output(error)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
