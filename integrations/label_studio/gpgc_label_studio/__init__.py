"""An ML backend of Label Studio: predicted masks, and the quality of drawn ones."""
