"""One file per engine: each trains the same task, with nothing but the loop, or with what users have on."""
