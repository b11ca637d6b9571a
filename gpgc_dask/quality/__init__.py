"""How good a mask is: calibrated probabilities, scores per image, and estimated quality."""
