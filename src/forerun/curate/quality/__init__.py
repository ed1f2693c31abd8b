"""How good a document is of its own type: a teacher labels some, a small student scores all, calibrated per type into five buckets."""
