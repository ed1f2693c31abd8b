"""How parameters move: MuonH, AdamH and Adam in named groups; schedules. `config.py` never imports JAX."""
