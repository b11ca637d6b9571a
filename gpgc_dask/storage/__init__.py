"""Bytes at a path or URL: reading, writing, retries and integrity checks."""
