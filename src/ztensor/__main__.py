"""`python -m ztensor`: the command line, if its script is not on the path."""

from ztensor.cli.main import main

if __name__ == "__main__":
    main()
