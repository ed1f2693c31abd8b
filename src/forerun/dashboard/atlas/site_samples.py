"""The documents one can read on the site: a few of every cell, in a file whose rows lie by cell, so that a page names its rows.

The lab keeps more of them (`samples.py`), for the search by topic and for measurements.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.samples import NEAREST_KIND, UNIFORM_KIND, samples

FILE = "samples.parquet"
NEAREST, UNIFORM = 4, 8  # assumed: as many as people read of a bucket; with 35 cells 0.3 MB
MOST = ((NEAREST_KIND, NEAREST), (UNIFORM_KIND, UNIFORM))
COLUMNS = ("cell", "kind", "rank", "id", "source", "source_id", "quality_score", "domain_cosine", "num_tokens", "text", "cut")


def site_samples(lab: Lab, book: Book) -> pa.Table:
    """The first of each kind in every cell, by cell and kind."""
    drawn = samples(lab, book)
    if "rank" not in drawn.column_names:
        return drawn
    kept = pc.or_(*(pc.and_(pc.equal(drawn["kind"], kind), pc.less(drawn["rank"], most)) for kind, most in MOST))
    return drawn.filter(kept).select([name for name in COLUMNS if name in drawn.column_names])


def spans(lab: Lab, book: Book) -> dict[str, tuple[int, int]]:
    """Cell to its first row and the one behind its last."""
    found: dict[str, tuple[int, int]] = {}
    for row, cell in enumerate(site_samples(lab, book)["cell"].to_pylist()):
        found[cell] = (found.get(cell, (row, row))[0], row + 1)
    return found
