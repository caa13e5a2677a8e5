"""One module for each trainer; it runs in an environment of its own, which the doctor is no part of."""
