"""Retry along the dependency chain: only the failed step and the steps that depend on it run again.

Three steps depend on a missing file. The first round fails, and the automatic retry does not find the file either. The
steps after it are skipped without a call. Then the file appears, and one retry completes exactly that chain.
"""

import asyncio

import rerail

files: dict[str, str] = {}
called: list[str] = []


def list_files() -> list[str]:
    called.append("list_files")
    return ["numbers.txt"]


def read_file(name: str) -> str:
    called.append("read_file")
    if name not in files:
        raise FileNotFoundError(f"no such file: {name}")
    return files[name]


def process_data(text: str) -> int:
    called.append("process_data")
    return sum(int(line) for line in text.split())


@rerail.tool(effect="repeatable")
def write_result(total: int) -> str:
    called.append("write_result")
    files["total.txt"] = str(total)
    return "total.txt"


TOOLS = [list_files, read_file, process_data, write_result]
# Steps may have no ids, as in plans of many planners: the index becomes the id.
PLAN = {
    "objective": "Add up the numbers",
    "steps": [
        {"aiName": "list_files"},
        {"aiName": "read_file", "dependsOn": [0], "args": {"name": "${0[0]}"}},
        {"aiName": "process_data", "dependsOn": [1], "args": {"text": "${1}"}},
        {"aiName": "write_result", "dependsOn": [2], "args": {"total": "${2}"}},
    ],
}


def show(result: rerail.RunResult) -> None:
    for row in result.steps.values():
        print(f"   {row.id} {row.tool:<13} {row.status:<10} {row.error['message'] if row.error else repr(row.output)}")
    print(f"   called: {', '.join(called)}")
    print(f"   verdict: {result.summary}\n")
    called.clear()


async def main() -> None:
    async with rerail.Engine("memory://", TOOLS) as engine:
        print("1. numbers.txt is not there, nor when the failed chain is retried by itself")
        result = await engine.run(PLAN)
        run = result.run_id
        (round_1,) = [event for event in await engine.events(run) if event.type == "retry_begin"]
        print(f"   failed: {', '.join(round_1.roots)}; retried with what depends on it: {', '.join(round_1.chain)}")
        show(result)

        print("2. What a retry would do, before anything runs")
        preview = await engine.retry(run, dry_run=True)
        print(f"   run again: {', '.join(row['step'] for row in preview.rerun)}; keep: {', '.join(preview.kept)}\n")

        print("3. numbers.txt has arrived: one retry")
        files["numbers.txt"] = "19\n23\n"
        show(await engine.retry(run))

        print("4. Read it again by force: the text is the same, so nothing behind it is called")
        show(await engine.retry(run, steps=["1"], force=True))

        print(f"total.txt: {files['total.txt']}")


asyncio.run(main())
