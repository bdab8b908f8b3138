"""What minds are asked, and how their answers are checked: text only, no clock, no chance, no I/O.

One module per question: `ask` makes a prompt of it, `read` makes an event or a refusal of the answer. An answer is
believed only as far as it holds, whoever gave it: a rule, a script, a model.
"""
