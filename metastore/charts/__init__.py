"""Charts: their values, and how they are drawn as SVG. Load-test reports and the console use them."""
