import rerail

bad_luck = [rerail.ToolError("no city 'Reykjavk'", suggest={"city": "Reykjavik"}), ConnectionError("connection reset")]
outbox: dict[str, str] = {}


def forecast(city: str) -> dict[str, str]:
    if bad_luck:
        raise bad_luck.pop()
    return {"sky": f"northern lights over {city}"}


def sent(args: dict[str, str]) -> rerail.Verified | bool:  # checks whether the mail was sent
    return rerail.Verified(output=f"mail delivered to {args['to']}") if args["to"] in outbox else False


@rerail.tool(effect="once", verify=sent)  # must not happen twice
def send(to: str, text: str) -> str:
    outbox[to] = text
    raise RuntimeError("mail sent, but the receipt is unreadable")


look = {"id": "look", "tool": "forecast", "args": {"city": "Reykjavk"}}
tell = {"id": "tell", "tool": "send", "args": {"to": "Ada", "text": "tonight, ${look.sky}"}}
result = rerail.run({"steps": [look, tell]}, tools=[forecast, send])
print(f"{result.status}: {result.summary}")
for step in result.steps.values():
    print(f"{step.id}: {step.status}, calls: {step.attempts}, output: {step.output}")
