"""The command line; `application` imports only the command that was called."""
