"""Documents as vectors: static tables through a word cache, TF-IDF with SVD, a model directory or an endpoint."""
