"""What a run leaves: typed events, crash-safe writer, reader, importers and exporters. Never imports JAX."""
