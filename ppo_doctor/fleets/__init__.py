"""Judge fleets of runs: many sources, one row of a table for each run."""
