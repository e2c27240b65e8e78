"""Runner: the parts of a run, put together, and the verbs that start it and make requests."""
