"""The fine clusters of a data set as a map: a dot each, those of one domain marked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from forerun.dashboard.html import Markup, join, tag, text

SIZE, EDGE = 480, 14


def map_of(fine: pa.Table, domain: str) -> Markup:
    """Dots at the clusters' `x` and `y`, their area by documents sampled; the domain's own are drawn last, on top."""
    x, y, weight = (np.asarray(fine[name], np.float64) for name in ("x", "y", "num_sampled"))
    names = fine["domain"].to_pylist()
    scale = (SIZE - 2 * EDGE) / max(float(np.ptp(x)), float(np.ptp(y)), 1e-9)
    left, bottom = EDGE + scale * (x - x.min()), SIZE - EDGE - scale * (y - y.min())
    radius = 2 + 9 * np.sqrt(weight / max(float(weight.max()), 1.0))

    def dot(index: int, *inside: Markup) -> Markup:
        return tag("circle", *inside, cx=f"{left[index]:.0f}", cy=f"{bottom[index]:.0f}", r=f"{radius[index]:.0f}")

    groups = []
    for name in sorted(set(names), key=lambda name: (name == domain, name)):
        members = [index for index in range(len(names)) if names[index] == name]
        if name == domain:
            dots = [dot(index, tag("title", f"{int(weight[index])} documents sampled")) for index in members]
        else:
            dots = [tag("title", name), *map(dot, members)]
        groups.append(tag("g", *dots, class_=f"point {'s0' if name == domain else 'other'}"))
    words = text(f"Map of fine clusters, those of {domain} marked")
    return Markup(f'<svg viewBox="0 0 {SIZE} {SIZE}" class="atlas-map" role="img" aria-label="{words}">{join(groups)}</svg>')
