"""From answered checks to a diagnosis: accounts of causes, problems, their order, and the verdict. See docs/diagnosis.md."""
