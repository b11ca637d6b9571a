"""The cost of a fit before it runs."""
