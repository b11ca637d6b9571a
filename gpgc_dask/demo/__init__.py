"""A demonstration on drawn photos, some of which have corrupted masks."""
