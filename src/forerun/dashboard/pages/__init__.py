"""The pages, one module a kind; each gives its `Page`s from the lab's files."""
