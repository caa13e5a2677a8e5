"""The interactive report: display diagnoses in the terminal; imported only with `-i`."""
