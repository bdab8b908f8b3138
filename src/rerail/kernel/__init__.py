"""The mechanism, pure: log → fold → decide. Read events, state, fold and decide first, in this order."""
