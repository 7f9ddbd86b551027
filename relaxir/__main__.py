"""``python -m relaxir``: the command line."""

from relaxir.cli import main

if __name__ == "__main__":
    main(prog_name="relaxir")
