"""Documents to named domains: fine spherical k-means, a weighted divisive merge, names by contrast, checks of both."""
