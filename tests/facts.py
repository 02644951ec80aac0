"""What the installed release of transformers is and names, for tests that have to know."""

from dataclasses import fields

import transformers
from transformers.generation.utils import GenerateDecoderOnlyOutput

from padfix.generation.compat import CACHE_NAMES

__all__ = ["CACHE_FIELD", "RECORDS_PER_THREAD", "RELEASE", "ROPE_FIELD"]

RELEASE = tuple(map(int, transformers.__version__.split(".")[:2]))

# The cache as a field of an output.
CACHE_FIELD = next(field.name for field in fields(GenerateDecoderOnlyOutput) if field.name in CACHE_NAMES)

# The rotary embedding as a field of a configuration.
ROPE_FIELD = "rope_parameters" if RELEASE >= (5, 0) else "rope_scaling"

# Whether threads that share a model may ask for hidden states: from 4.57 to 5.0 one finds those of another in its own.
RECORDS_PER_THREAD = not (4, 57) <= RELEASE < (5, 24)
