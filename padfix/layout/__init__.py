"""Pure tensors: which positions of a batch are real, and how its columns move. Knows torch alone."""
