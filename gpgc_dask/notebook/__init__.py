"""Displays of models, plans and datasets in a notebook: cards, plots and progress."""
