"""Crash tests of a plan: it is run once undisturbed, and then once for every moment at which a process may die.

    report = await crashtest("plan.yaml", ["tools.py"])          # real processes, real kill -9, real calls
    report = crash_in_process(plan, lambda: [tool, …])           # the engine abandoned in the middle: for tests

Both call the tools for real, many times over.
"""
