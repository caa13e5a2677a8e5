"""The interactive report: a view of diagnoses that judges nothing itself; imported only when it is asked for."""
