"""One photo at a time: reading, superpixels, features, painting. Knows no model and no cluster."""
