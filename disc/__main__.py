"""`python -m disc` is the command line."""

from disc.cli import main

main()
