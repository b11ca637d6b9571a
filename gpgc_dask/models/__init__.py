"""The models: GPGC, GP and MarginSVM, their validation, reviews and files."""
