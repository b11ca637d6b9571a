"""What a fit will cost, before it runs."""
