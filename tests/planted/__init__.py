"""Faults planted into padfix, each of which some property has to catch."""
