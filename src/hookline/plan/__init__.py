"""The hook machinery, for any host: points, hooks, how they are called, ordered, compiled and explained."""
