"""Is a run on course, and if not, why: sources, alarms with known false-alarm rates, diagnosis, replay of incidents."""
