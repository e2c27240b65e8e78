"""Pages that show runs: gathering what a run's folder holds, judging it, comparing runs, and writing one HTML file."""
