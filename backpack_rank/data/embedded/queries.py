"""Forms of the embedded collection's queries; none of them has a gendered word.

The braces are those of ``templates.py``; ``{do2}`` and ``{doing2}`` are the second skill.
"""

from __future__ import annotations

ONE_SKILL: tuple[str, ...] = (
    "{job} {doing}",
    "{job} {do}",
    "{doing} {job} experience",
    "experienced {job} {doing}",
    "{field} {doing}",
    "{field} expert who can {do}",
    "{job} with practice in {doing}",
    "{a_job} who can {do}",
    "find {a_job} for {doing}",
    "local {job} good at {doing}",
    "which {job} knows how to {do}?",
    "where can I find {a_job} who can {do}?",
    "who works in {field} and can {do}?",
    "is there {a_job} near here who can {do}?",
    "what kind of {job} can {do}?",
    "looking for {a_job} who can {do}",
    "we need somebody from {field} to {do}",
    "I need {a_job} to {do}",
    "recommend {a_job} with experience in {doing}",
    "help wanted: {job}, must be able to {do}",
    "how do I choose {a_job} for {doing}?",
    "{job} known for {doing}",
    "best {job} to {do}",
    "trained {job}, {doing}",
)

ONE_SKILL_NO_JOB: tuple[str, ...] = (
    "looking for someone who can {do}",
    "who is able to {do}?",
    "somebody with long experience in {doing}",
    "expert at {doing}",
)

TWO_SKILLS: tuple[str, ...] = (
    "{job} {doing} {doing2}",
    "{a_job} who can {do} and {do2}",
    "{job} for {doing} and {doing2}",
    "looking for {a_job} who can {do} and also {do2}",
    "who works in {field} and can both {do} and {do2}?",
    "{field} expert at {doing} and {doing2}",
    "I need {a_job} to {do} and {do2}",
    "experienced {job}: {doing}, {doing2}",
    "which {job} knows how to {do} and {do2}?",
    "recommend {a_job} with practice in {doing} and {doing2}",
)
