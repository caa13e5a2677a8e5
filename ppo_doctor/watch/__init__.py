"""Watching a run live: follow a growing log, judge it again and again, and tell what changed.

`tail` knows files and no containers, `growing` containers and no files, `follower` joins the two; `monitor` turns
diagnoses into events and knows neither clock nor file; `session` is the loop around them, `live` and `plain` show it.
"""
