"""What a run leaves behind: crash-safe journals, sealed segments, events, lineage; readers, importers and exporters."""
