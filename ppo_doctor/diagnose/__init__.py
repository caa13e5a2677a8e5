"""From answered checks to a diagnosis: accounts of causes, problems in order, the verdict. See docs/diagnosis.md."""
