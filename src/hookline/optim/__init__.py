"""One update, its schedules and its clipping."""
