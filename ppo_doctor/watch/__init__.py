"""Watching a run live: read a growing log again and again, judge it, and report what changed.

`log` knows files and reads them as `analyze` does; `monitor` turns diagnoses into events and knows neither clock nor
file; `session` is the loop around them, `live` and `events` show it.
"""
