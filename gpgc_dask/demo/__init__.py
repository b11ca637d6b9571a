"""A set of drawn photos, some with spoilt masks, to see the whole at work on."""
