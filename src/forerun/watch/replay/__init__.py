"""Replay: healthy runs with real noise, incidents planted on top, and how often and how soon each alarm answers."""
