"""Results for users: rankings, reports, exports and evaluations."""
