"""`leadtime bench`: what a replica carries, how well more of them scale, and what is in the way."""
