"""The atlas: what is in a data set, from the whole down to one document and one pair, read from the files of its store."""
