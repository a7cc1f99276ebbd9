"""``python -m nestopt`` is the command line."""

from nestopt.cli import main

main()
