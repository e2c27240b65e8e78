"""hookline inside loops of others: a loop that the user writes, and other engines, one module each."""
