"""The loop that runs plans: perform what `decide` says, write down what the world answers."""
