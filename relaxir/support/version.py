"""The version of relaxir: the one place where it is written; ``setup.cfg`` reads it from here."""

__version__ = "0.1.0"
