"""Pages and figures: one description of a figure for the page (SVG) and for the PNG; and the report of a run."""
