"""Where a call runs: in a thread of this process, or in a process that can be killed."""
