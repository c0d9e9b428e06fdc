"""What a runner says about its machine, and what it reads about its own and other machines."""
