"""How many examples a property gets: `HYPOTHESIS_PROFILE` is dev (50; the default), ci (300; where CI is set) or deep
(5,000).

ci draws the same examples in every run, so that a red run speaks of the change and not of the draw; dev and deep
search anew each time, and what they find is kept in `.hypothesis` and printed as a blob to replay.
"""

import os

from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=300, deadline=None, print_blob=True, derandomize=True, database=None)
settings.register_profile("deep", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
