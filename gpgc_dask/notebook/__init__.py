"""Models, plans and datasets as people look at them in a notebook: cards, plots and tables."""
