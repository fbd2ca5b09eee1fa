"""A corpus of files, and whether a reader does with each of them what its formats ask.

    from ztensor.conformance import run_corpus

    report = run_corpus("corpus2", ["my-reader", "--strict"])
    print(report.ok, report.counts)

The reader is any command that takes a path: it prints what it found as JSON, or says by its exit
code alone whether it takes the file. `docs/specification/conformance.md` has the protocol.

| file | has |
| --- | --- |
| `answer.py` | what a reader says of a file, from its exit code and its output |
| `judging.py` | what the corpus expects, and whether an answer is that |
| `asking.py` | a command, called within bounds of time, output and memory |
| `reader.py` | our own reader, in the words of the protocol: `python -m ztensor.conformance FILE` |
| `running.py` | every file of a corpus, one after another or several at a time |

Read them in this order. Nothing else in the library imports this package, but the command.
"""

from ztensor.conformance.answer import Answer, Ended
from ztensor.conformance.judging import Verdict
from ztensor.conformance.running import ConformanceReport, run_corpus

__all__ = ["Answer", "ConformanceReport", "Ended", "Verdict", "run_corpus"]
