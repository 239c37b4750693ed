"""The page of a run: pictures of the run as JSON, and the scripts and styles that show them in a browser."""
