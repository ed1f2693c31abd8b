"""One run: loop, step, state, evaluate, checkpoint, throughput. `config.py` never imports JAX."""
