"""Properties: the laws of the layout and of detection, and random batches through `generate`."""
