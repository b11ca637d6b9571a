"""The dataset on disk."""
