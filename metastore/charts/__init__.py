"""Charts as values, and their drawing as SVG. Load-test reports and the console use them."""
