"""Print the content of one file as the protocol asks of a tested reader."""

import sys

from ztensor.conformance.reader import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
