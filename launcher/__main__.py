"""`python -m launcher` is `launch`."""

from launcher.cli import main

main()
