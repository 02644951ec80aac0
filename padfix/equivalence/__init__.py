"""The instrument: what prompts get in a padded batch against what each gets alone.

`verify.verify` runs both, `compare` holds one reply against another, `report` is the result with its verdicts, `table`
and `plot` are its pictures.
"""
