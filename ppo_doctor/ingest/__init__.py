"""What stands between the bytes of a log and the run that they tell of: what names mean."""
