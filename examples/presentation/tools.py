"""Tools of the presentation: the search engine and the theme model are down, everything else works."""

from typing import Any


async def analyze_topic(topic: str) -> dict[str, Any]:
    return {"topic": topic, "audience": "beginners", "points": ["what it is", "why it breaks", "how it heals"]}


async def search_web(query: str) -> list[str]:
    raise ConnectionError("search.example: connection refused")


async def generate_course_config(analysis: dict[str, Any], links: list[str] | None = None) -> dict[str, Any]:
    return {"title": analysis["topic"].title(), "pages": len(analysis["points"]), "links": links or []}


async def generate_outline(config: dict[str, Any], points: list[str]) -> list[str]:
    return [f"{number}. {point}" for number, point in enumerate(points, 1)][: config["pages"]]


async def generate_scripts(pages: list[str]) -> list[str]:
    return [f"Let us talk about {page[3:]}." for page in pages]


async def generate_theme(title: str) -> dict[str, str]:
    raise TimeoutError("the model did not answer in time")


async def generate_slides(pages: list[str], scripts: list[str], theme: dict[str, str]) -> list[dict[str, str]]:
    return [{"page": page, "say": say, "color": theme["color"]} for page, say in zip(pages, scripts, strict=True)]


TOOLS = [
    analyze_topic,
    search_web,
    generate_course_config,
    generate_outline,
    generate_scripts,
    generate_theme,
    generate_slides,
]
