"""Name the lines of a script that the metrics of an update are about."""
