"""Language models, and what makes minds of them."""
