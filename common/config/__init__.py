"""Where values come from: settings, the configuration file, credentials, AWS."""
