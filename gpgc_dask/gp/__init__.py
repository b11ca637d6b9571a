"""The mathematics of GP-GC."""
