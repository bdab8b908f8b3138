"""The demo: a plan that fails in five ways, is killed in the middle, and finishes all the same (`rerail demo`)."""
