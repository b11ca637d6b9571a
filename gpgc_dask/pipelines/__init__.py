"""Work on many photos that can be resumed."""
