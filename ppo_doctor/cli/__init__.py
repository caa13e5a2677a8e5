"""The command line: `application` runs it, and imports of the commands only the one that was called."""
