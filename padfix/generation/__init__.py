"""The objects of transformers: arguments, traits of a model, outputs. Patches nothing, picks no strategy."""
