"""What a run is, what a rule finds, what a diagnosis says: frozen types, with the vocabulary of metrics and errors."""
