"""Connecting to Dask clusters: local, remote, Kubernetes."""
