"""The hook machinery for any host: points, hooks, and the plan that orders, compiles, calls and explains them."""
