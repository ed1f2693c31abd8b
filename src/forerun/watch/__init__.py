"""A live run from its records: sources, alarms, on-course test, diagnosis, replay. Knows files, not code."""
