"""What a run shows, as numbers without a scale of their own: one module for each link of the signal chain.

Every function takes `Observations` and returns a Fact, or None where the log cannot tell. They are rows of
`derive.table`, and the checks of `rules/` hold them against bounds.
"""
