"""Discover, split, join and merge the files of one run into an immutable `Run`."""
