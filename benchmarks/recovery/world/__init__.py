"""The world that contenders act on: stateful tools that nobody here wrote, in a process that outlives contenders."""
