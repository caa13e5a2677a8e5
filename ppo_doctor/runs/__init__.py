"""What belongs to one run: files discovered, split, joined and merged into an immutable `Run`."""
