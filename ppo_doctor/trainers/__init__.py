"""What trainers write: names of metrics and settings, and configurations. It opens configuration files and no logs."""
