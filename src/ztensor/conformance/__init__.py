"""Run a reader over a corpus of files, and judge whether it follows the specifications.

    from ztensor.conformance import run_corpus

    report = run_corpus("corpus2", ["my-reader", "--strict"])
    print(report.ok, report.counts)

The reader is any command that takes a path. It prints the content as JSON, or reports only by its
exit code whether it accepts the file. `docs/specification/conformance.md` has the protocol.

| file | has |
| --- | --- |
| `answer.py` | the answer of a reader: its exit code and output |
| `judging.py` | the verdict on an answer |
| `asking.py` | calls of a command with limits of time, output and memory |
| `reader.py` | our own reader as a command of the protocol: `python -m ztensor.conformance FILE` |
| `running.py` | runs over all files of a corpus |

Read them in this order. Only the command imports this package.
"""

from ztensor.conformance.answer import Answer, Ended
from ztensor.conformance.judging import Verdict
from ztensor.conformance.running import ConformanceReport, run_corpus

__all__ = ["Answer", "ConformanceReport", "Ended", "Verdict", "run_corpus"]
