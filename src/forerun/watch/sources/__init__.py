"""Where a run's metrics come from: one file a kind, one signature. `connect` in `all.py` lists them.

A source module has `connect(where: str) -> Source`. `Source.read()` returns everything known so far as a record; later calls
fetch only what is new.
"""
