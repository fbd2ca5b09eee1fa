"""Read one file and say what is in it, as any reader that is tested does."""

import sys

from ztensor.conformance.reader import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
