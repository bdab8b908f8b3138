"""Tools of the pipeline. They use no model and no network; simple rules write what a model would write.

To see a stage fail, name it:  GENERATION_TASK_FAIL=generating
and a permanent failure:       GENERATION_TASK_FAIL="generating: API密钥无效"
"""

from __future__ import annotations

import os
import re
from typing import Any

import rerail

LIBRARY = {
    "press": ["Write a one-page release", "Send it to twelve editors", "Offer two interviews"],
    "social media": ["Plan nine posts", "Film a thirty-second clip", "Answer within a day"],
    "event": ["Book a room for eighty guests", "Invite partners", "Prepare a live demonstration"],
    "newsletter": ["Write to all customers", "Measure who opens it"],
}


def troubled(stage: str) -> None:
    """Fail if the environment says so, like an unavailable service."""
    wanted, _, message = os.environ.get("GENERATION_TASK_FAIL", "").partition(":")
    if wanted.strip() == stage:
        raise RuntimeError(message.strip() or "503 Service Unavailable: try again later")


@rerail.tool
def extract_requirements(request: str, ctx: rerail.Context) -> dict[str, Any]:
    """Extract requirements from the words of a request."""
    troubled("extracting")
    budget = re.search(r"budget of (\d+)", request)
    topics = [topic for topic in LIBRARY if topic in request.lower()]
    requirements = {
        "objective": request.partition(".")[0].strip(),
        "topics": topics or ["newsletter"],
        "budget": int(budget[1]) if budget else None,
    }
    ctx.write_json("requirements.json", requirements)
    return {"topics": len(requirements["topics"])}


@rerail.tool
def retrieve_templates(ctx: rerail.Context) -> dict[str, Any]:
    """Find templates for the topics."""
    troubled("retrieving")
    topics = ctx.read_json("requirements.json")["topics"]
    templates = [{"topic": topic, "tasks": LIBRARY.get(topic, LIBRARY["newsletter"])} for topic in topics]
    ctx.write_json("templates.json", templates)
    return {"templates": len(templates)}


@rerail.tool
def generate_plan(ctx: rerail.Context) -> dict[str, Any]:
    """Write the plan."""
    troubled("generating")
    requirements, templates = ctx.read_json("requirements.json"), ctx.read_json("templates.json")
    share = round((requirements["budget"] or 0) / len(templates))
    sections = [{"topic": one["topic"], "tasks": one["tasks"], "budget": share} for one in templates]
    ctx.write_json("plan.json", {"title": requirements["objective"], "sections": sections})
    words = sum(len(task.split()) for one in sections for task in one["tasks"])
    result = {"sections": len(sections), "words": words}
    ctx.write_json("generation_result.json", result)
    return result


@rerail.tool
def evaluate_plan(ctx: rerail.Context) -> dict[str, Any]:
    """Rate the plan."""
    troubled("evaluating")
    sections = ctx.read_json("plan.json")["sections"]
    remarks = [f"{one['topic']}: {len(one['tasks'])} tasks" for one in sections if len(one["tasks"]) < 4]
    feedback = {"score": round(10 - len(remarks) / 2, 1), "remarks": remarks}
    ctx.write_json("feedback.json", feedback)
    return {"score": feedback["score"]}


@rerail.tool
def reflect_on_feedback(ctx: rerail.Context) -> dict[str, Any]:
    """Derive lessons from the feedback."""
    troubled("reflecting")
    remarks = ctx.read_json("feedback.json")["remarks"]
    ctx.write_json("reflection.json", {"lessons": [f"plan more for {remark.partition(':')[0]}" for remark in remarks]})
    return {"lessons": len(remarks)}


@rerail.tool
def curate_playbook(ctx: rerail.Context) -> dict[str, Any]:
    """Keep the new lessons."""
    troubled("curating")
    playbook = sorted(set(ctx.read_json("reflection.json")["lessons"]))
    ctx.write_json("curation.json", {"added": len(playbook), "playbook": playbook})
    return {"added": len(playbook)}
