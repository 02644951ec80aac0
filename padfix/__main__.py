"""`python -m padfix`: the command `padfix`."""

from .cli import main

raise SystemExit(main())
