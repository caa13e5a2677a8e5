"""Statistics of a run, one module per link of the signal chain, and the engine that answers the rules."""
