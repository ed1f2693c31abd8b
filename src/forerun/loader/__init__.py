"""Token store to batches: a pure function of (manifest, mixture, seed, step, seq_len). Never imports JAX."""
