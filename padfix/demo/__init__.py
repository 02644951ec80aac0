"""The demo: a batch padded on the right, with and without padfix, beside every prompt alone.

`run.main` is the command, `compare.compare` the comparison for any model, `table` its picture; `task`
and `train` are what the embedded model in `model/` can do and how it came to be.
"""
