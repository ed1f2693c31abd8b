"""Documents from wherever they lie: JSON lines, Parquet, text and HTML trees, WARC and WET, Arrow data sets, local or remote."""
