"""The dataset on disk: writing, opening, summary, and the arrays for a fit."""
