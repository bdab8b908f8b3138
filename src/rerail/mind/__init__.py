"""Questions to minds, and checks of their answers: text only, no clock, no randomness, no I/O.

One module per question: `read` makes an event or a refusal of the answer. Every answer is checked before use, whether
it comes from a rule, a script or a model. `prompts/` holds the prompts, `answers.json` the schemas of the answers.
"""
