"""Other tools on the same logs: what they name, what they only notice, and what they alarm of without need."""
