"""Where values come from: settings, the configuration file, credentials, AWS.

`settings.py` has the models and the types of their fields, `sources.py` finds the values, `aws.py` makes AWS
clients for secrets, state and records.
"""
