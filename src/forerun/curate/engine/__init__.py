"""Where tasks run: in this process, in Daft's worker processes, or on a Ray cluster. A task is a function and plain arguments."""
