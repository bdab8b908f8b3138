import rerail

bad_luck = [rerail.ToolError("no city 'Reykjavk'", suggest={"city": "Reykjavik"}), ConnectionError("connection reset")]


def forecast(city: str) -> dict[str, str]:
    if bad_luck:
        raise bad_luck.pop()
    return {"sky": f"northern lights over {city}"}


@rerail.tool(effect="once")  # must not happen twice, whatever fails or dies
def send(to: str, text: str) -> str:
    return f"{to} knows: {text}"


look = {"id": "look", "tool": "forecast", "args": {"city": "Reykjavk"}}
tell = {"id": "tell", "tool": "send", "args": {"to": "Ada", "text": "tonight, ${look.sky}"}}
result = rerail.run({"steps": [look, tell]}, tools=[forecast, send])
print(f"{result.status}: {result.summary}")
for step in result.steps.values():
    print(f"{step.id}: {step.status}, calls: {step.attempts}, output: {step.output}")
