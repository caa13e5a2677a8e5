"""From answered checks to a diagnosis: outcome, problems, causes, verdict. See docs/diagnosis.md."""
