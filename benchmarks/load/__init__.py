"""Load: very many runs, very many at once, a very long one, a whole day; told as growth within one measurement."""
