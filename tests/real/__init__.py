"""The real model; its own tier: pytest -m real -n 0."""
