"""The generation surfaces: chat, completions, responses and native generate.

Each surface is rules, then a work item, then events into an answer; blocking answers and streams are built from the
same events.
"""
