"""Names of metrics and settings by trainer, and configuration files; no logs are opened here."""
