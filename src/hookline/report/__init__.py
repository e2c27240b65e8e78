"""Pages that show runs: gathering the data of a run's folder, judging it, comparing runs, and writing one HTML file."""
