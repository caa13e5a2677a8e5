"""Sound and faulty runs of the trainers that the recorder attaches to."""
