"""The main job end to end on real text, as one command."""
