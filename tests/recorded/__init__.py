"""What the interfaces answered, recorded: `--json`, plain output, HTTP, streams, sockets and MCP of one set of runs.

    python -m tests.recorded            record everything anew
    python -m tests.recorded --words    take over changed sentences, and refuse any other change

A change of the code may add fields. It may take nothing away and change nothing, but for what `gone.py` lists.
"""
