"""Those who run the plans; each in a process, and where it is somebody else's work, in an environment, of its own."""
