"""The version of the distribution; `pyproject.toml` states the same one (held by a test)."""

__version__ = "0.1.0"
