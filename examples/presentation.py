"""A talk from a topic: each task finds what the tasks before it made, and it is ready although two of them failed.

The web search is optional, and fails: the talk goes on without it. The theme comes from a model that is down: a
template stands in. Both are told in the verdict; nothing is made up that the plan does not name.
"""

import asyncio
from typing import Any

import rerail


def analyze_topic(topic: str) -> dict[str, Any]:
    return {"topic": topic, "audience": "beginners", "points": ["what it is", "why it breaks", "how it heals"]}


def search_web(query: str) -> list[str]:
    raise ConnectionError("search.example: connection refused")


def course_config(analysis: dict[str, Any], links: list[str] | None = None) -> dict[str, Any]:
    return {"title": analysis["topic"].title(), "pages": len(analysis["points"]), "links": links or []}


def outline(config: dict[str, Any], points: list[str]) -> list[str]:
    return [f"{number}. {point}" for number, point in enumerate(points, 1)][: config["pages"]]


def write_scripts(pages: list[str]) -> list[str]:
    return [f"Let us talk about {page[3:]}." for page in pages]


def design_theme(title: str) -> dict[str, str]:
    raise TimeoutError("the model did not answer in time")


def build_slides(pages: list[str], scripts: list[str], theme: dict[str, str]) -> list[dict[str, str]]:
    return [{"page": page, "say": say, "color": theme["color"]} for page, say in zip(pages, scripts, strict=True)]


TOOLS = [analyze_topic, search_web, course_config, outline, write_scripts, design_theme, build_slides]
PLAN = """
topic: self-healing plans
tasks:
  - {id: topic, type: analyze_topic, parameters: {topic: self-healing plans}}
  - id: search
    type: search_web
    parameters: {query: "${topic.topic}"}
    metadata: {critical: false, maxRetries: 1}
  - {id: config, type: course_config, parameters: {analysis: "${topic}", links: "${search}"}}
  - {id: outline, type: outline, parameters: {config: "${config}", points: "${topic.points}"}}
  - {id: scripts, type: write_scripts, parameters: {pages: "${outline}"}}
  - id: theme
    type: design_theme
    parameters: {title: "${config.title}"}
    dependencies: [{taskId: outline, condition: success}]
    metadata: {maxRetries: 1}
    fallback: {value: {color: plain white}}
  - id: slides
    type: build_slides
    parameters: {pages: "${outline}", scripts: "${scripts}", theme: "${theme}"}
"""
CIRCLE = [
    {"id": "handout", "tool": "write_scripts", "args": {"pages": "${quiz}"}},
    {"id": "quiz", "tool": "write_scripts", "args": {"pages": "${handout}"}},
]


async def main() -> None:
    settings = {"retry": {"backoff_base": 0.05}}
    async with rerail.Engine("memory://", TOOLS, settings) as engine:
        run = await engine.start(PLAN)
        print("Two more tasks for the live run, which need each other")
        try:
            await engine.add(run, CIRCLE)
        except rerail.PlanError as error:
            print(f"   refused: {error.faults[0].message}")

        print("\nThe run goes on")
        async for event in engine.watch(run):
            if event.type == "retry_scheduled":
                print(f"   {event.step}: failed, tries again ({event.retries_left} retries left)")
            elif event.type == "step_skipped":
                print(f"   {event.step}: {event.message}")
            elif event.type == "recovered":
                print(f"   {event.step}: {event.rung}, because {event.reason}")
            elif event.type == "step_succeeded":
                print(f"   {event.step}: done")
        result = await engine.show(run)

        print("\nArtifacts, one for each task that made something")
        for artifact in await engine.artifacts(run):
            print(f"   {artifact['name']:<8} {artifact['size']:>4} bytes  made by {artifact['step']}")

        print("\nThe slides")
        for slide in await engine.artifact(run, "slides"):
            print(f"   {slide['page']:<18} {slide['say']:<40} ({slide['color']})")

        print(f"\nThe verdict: {result.status}, degraded: {result.degraded}")
        for row in result.steps.values():
            if row.degraded or row.status == "skipped":
                print(f"   {row.id:<8} {row.status:<9} {row.degraded or row.code}")


asyncio.run(main())
