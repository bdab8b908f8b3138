"""Plans of the browser tests, told once: what is tested is also what the pictures of the docs show."""

from __future__ import annotations

from typing import Any

import yaml

Steps = list[dict[str, Any]]

# A trip north: something of everything that can go wrong and be mended, and one thing that cannot.
TRIP = """
- {id: wishes, title: Read the wishes, tool: note, args: {text: {city: Reykjavk, nights: 3}}}
- {id: sky, title: Ask for the sky, tool: forecast, args: {city: "${wishes.text.city}"}}
- {id: flights, title: Find flights, tool: flaky, args: {name: flights, fails: 2}, needs: [wishes]}
- {id: hotel, title: Find a hotel, tool: down, args: {name: hotel}, alternatives: [spare], needs: [wishes]}
- {id: ideas, title: Ideas for rainy days, tool: down, args: {name: ideas}, critical: false, retries: 1, needs: [sky]}
- {id: route, title: Draw the route, tool: note, args: {text: a map, gate: GATE}, needs: [flights, sky]}
- id: permit
  title: Get the permit
  tool: broken
  args: {name: permit, message: the office wants another key}
  needs: [wishes]
- id: budget
  title: Add it all up
  tool: report
  args: {name: budget.md}
  needs: [flights, hotel]
  produces: [budget.md]
- id: book
  title: Book it
  tool: send
  args: {to: agency, text: "${budget.file}"}
  needs: [route, budget]
  confirm: Book the trip for 1,240 €?
- {id: visa, title: Send the papers, tool: send, args: {to: consulate}, needs: [permit]}
- id: tell
  title: Tell everybody
  tool: note
  args: {text: "${sky.sky}"}
  needs: [book, {step: ideas, when: done}]
"""


def trip(gate: str = "") -> Steps:
    """The trip; its slowest step waits at this gate."""
    steps: Steps = yaml.safe_load(TRIP.replace("GATE", f'"{gate}"'))
    return steps
