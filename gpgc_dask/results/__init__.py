"""What people read: rankings, reports, exports, evaluations."""
