"""Putting sentences together: a draft is a document whose gendered words are still slots.

A template marks a gendered word as ``[he]``, ``[his]``, ``[father]`` and a verb that follows "he"
as ``[works|work]``. The male and the female text differ only in the paired words; the neutral text
uses they / their with the plural verb.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from backpack_rank.checks import one_of
from backpack_rank.data.synthetic.resources import (
    FOLDER,
    SLOT,
    Occupation,
    Skill,
    read_lists,
    read_slots,
)

GENDERS = ("male", "female", "neutral")
GENDERED_WORDS, TITLES = read_slots(FOLDER / "gendered_words.yaml")


def render(text: str, gender: str) -> str:
    """Fill the slots of a text for one of :data:`GENDERS`.

    >>> render("[he] [works|work] alone.", "neutral")
    'They work alone.'

    Every sentence starts with a capital.

    Raises:
        ValueError: the gender is not one of the three.
        KeyError: the text has a slot that ``gendered_words.yaml`` does not list.
    """
    one_of("gender", gender, GENDERS)

    def fill(match: re.Match[str]) -> str:
        slot = match.group(1)
        if "|" in slot:
            singular, plural = slot.split("|")
            return plural if gender == "neutral" else singular
        if slot in TITLES:  # a neutral text has none, nor the blank before the surname
            return "" if gender == "neutral" else f"{TITLES[slot][GENDERS.index(gender)]} "
        return GENDERED_WORDS[slot][GENDERS.index(gender)]

    return _capitalise(SLOT.sub(fill, text))


def count_slots(text: str) -> tuple[int, int]:
    """Count the gendered words of a text: all of them, and those that are no titles.

    >>> count_slots("[mr_ms]Lee says [he] [works|work] alone.")
    (2, 1)
    """
    words_and_titles = words = 0
    for slot in SLOT.findall(text):
        if "|" in slot:  # a verb in two forms
            continue
        words_and_titles += 1
        if slot not in TITLES:
            words += 1
    return words_and_titles, words


def _capitalise(text: str) -> str:
    # The first letter, and every one behind the end of a sentence, also of a quoted one.
    return re.sub(
        r'(?:^|(?<=[.?!] )|(?<=[.?!]" ))("?)([a-z])',
        lambda m: m.group(1) + m.group(2).upper(),
        text,
    )


MIN_WORDS, MAX_WORDS = 30, 120
MIN_GENDERED, MAX_GENDERED = 2, 6

PLACEHOLDERS = (
    *("name", "place", "other", "an_other", "job", "a_job", "job2", "a_job2"),
    *("field", "years", "age", "season", "do", "doing"),
)
WORDS = read_lists(FOLDER / "words.yaml")
SENTENCES = read_lists(FOLDER / "sentences.yaml", PLACEHOLDERS, (*GENDERED_WORDS, *TITLES))


@dataclass(frozen=True)
class Draft:
    """A document before its wording is chosen: :func:`render` chooses it.

    Attributes:
        occupation: what the document is about, or None when it only mentions an occupation.
        skills: the skills that it says the person (or a good one) has.
        text: sentences with slots for :func:`render`.
    """

    occupation: Occupation | None
    skills: tuple[Skill, ...]
    text: str


@dataclass(frozen=True)
class _Kind:
    """Which sentences a document is made of."""

    openings: tuple[str, ...]
    claims: tuple[str, ...]
    about_job: tuple[str, ...]
    fillers: tuple[str, ...]


_PROFILE = _Kind(
    SENTENCES["profile_openings"],
    SENTENCES["profile_claims"],
    SENTENCES["job_mentions"] + SENTENCES["job_remarks"],
    SENTENCES["business"] + SENTENCES["private"] + SENTENCES["common_duties"],
)
_HIRING = _Kind(
    SENTENCES["hiring_openings"],
    SENTENCES["hiring_claims"],
    SENTENCES["job_remarks"],
    SENTENCES["hiring_tips"],
)
_CAREER = _Kind(
    SENTENCES["career_openings"],
    SENTENCES["career_claims"],
    SENTENCES["job_remarks"],
    SENTENCES["career_tips"],
)
_OUTSIDER = _Kind(
    SENTENCES["outsider_openings"],
    SENTENCES["outsider_mentions"] + SENTENCES["denials"],
    SENTENCES["outsider_extras"],
    SENTENCES["private"],
)
_DENIALS = SENTENCES["denials"]
_DUTIES = SENTENCES["common_duties"] + SENTENCES["duties"]


class Composer:
    """Writes drafts; all choices come from the generator of random numbers.

    draft = Composer(random.Random(0)).capable(occupation, occupation.skills[:1])
    text = render(draft.text, "female")
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def capable(self, occupation: Occupation, skills: Sequence[Skill]) -> Draft:
        """A profile or an advice passage that claims the occupation and the skills."""
        kind = self._rng.choices((_PROFILE, _HIRING, _CAREER), weights=(70, 18, 12))[0]
        return self._compose(kind, occupation, skills, claims=True)

    def lacking(self, occupation: Occupation, denied: Skill) -> Draft:
        """A profile in the occupation that says the skill is missing."""
        return self._compose(_PROFILE, occupation, (denied,), claims=False)

    def busy(self, occupation: Occupation) -> Draft:
        """A profile in the occupation with everyday duties, without any skill of the catalogue."""
        return self._compose(_PROFILE, occupation, (), claims=False)

    def outsider(self, occupation: Occupation, mentioned: Skill) -> Draft:
        """A person outside the catalogue; the occupation and the skill are only mentioned."""
        draft = self._compose(_OUTSIDER, occupation, (mentioned,), claims=False)
        return Draft(None, (), draft.text)

    def _compose(
        self, kind: _Kind, occupation: Occupation, skills: Sequence[Skill], claims: bool
    ) -> Draft:
        """Draw until the number of words and of gendered words is within the bounds."""
        while True:
            text = self._attempt(kind, occupation, skills, claims)
            all_slots, word_slots = count_slots(text)
            gendered = word_slots >= MIN_GENDERED and all_slots <= MAX_GENDERED
            # titles add a word when they are rendered, so the bounds hold with one word to spare
            # per slot
            long_enough = MIN_WORDS <= len(text.split()) <= MAX_WORDS - MAX_GENDERED
            if gendered and long_enough:
                return Draft(occupation, tuple(skills) if claims else (), text)

    def _attempt(
        self, kind: _Kind, occupation: Occupation, skills: Sequence[Skill], claims: bool
    ) -> str:
        rng = self._rng
        person = _Person(rng, occupation)
        opening = person.fill(rng.choice(kind.openings))
        sentences = kind.claims if claims or kind is _OUTSIDER else _DENIALS
        again = _SECOND_MENTION if claims else _SECOND_MENTION_UNCLAIMED
        phrases: list[str] = []
        for skill in skills:
            # One of the skill's phrases, with probability ``again`` two different ones.
            number = 2 if rng.random() < again else 1
            phrases += rng.sample(skill, number)
        body: list[str] = []
        for sentence, phrase in zip(rng.sample(sentences, len(phrases)), phrases, strict=True):
            body.append(person.fill(sentence, phrase))
        if not skills:
            body += map(person.fill, rng.sample(_DUTIES, 2))
        if rng.random() < _JOB_MENTION:
            body.append(person.fill(rng.choice(kind.about_job)))
        body += self._fillers(kind, person, [opening, *body])
        rng.shuffle(body)
        return " ".join([opening, *body])

    def _fillers(self, kind: _Kind, person: _Person, sentences: list[str]) -> list[str]:
        """Sentences that name no skill, up to a length drawn for the document."""
        wanted = min(MIN_WORDS + self._rng.expovariate(1 / _MEAN_EXTRA_WORDS), MAX_WORDS - 20)
        words = slots = 0
        for sentence in sentences:
            words += len(sentence.split())
            slots += count_slots(sentence)[0]
        chosen: list[str] = []
        for template in self._rng.sample(kind.fillers, len(kind.fillers)):
            if words >= wanted:
                break
            new_slots, _ = count_slots(template)
            if slots + new_slots > MAX_GENDERED:
                continue
            sentence = person.fill(template)
            if sentence in sentences:  # a profile's fillers share some sentences with its duties
                continue
            chosen.append(sentence)
            words += len(sentence.split())
            slots += new_slots
        return chosen


_MEAN_EXTRA_WORDS = 14
"""Words beyond the fewest that a document aims at, in the mean of an exponential distribution."""
_SECOND_MENTION = 0.35
"""Share of claimed skills that a document names twice."""
# Who only mentions a skill mentions it more often, so that matching words alone mislead.
_SECOND_MENTION_UNCLAIMED = 1.0
_JOB_MENTION = 0.9


class _Person:
    """Fills templates; surname, title, place and outside work stay the same within one document."""

    def __init__(self, rng: random.Random, occupation: Occupation) -> None:
        self._rng = rng
        self._occupation = occupation
        self._name = rng.choice(("", "[mr_ms]", "[mr_mrs]", "")) + rng.choice(WORDS["surnames"])
        self._place = rng.choice(WORDS["places"])
        self._other = rng.choice(WORDS["other_work"])

    def fill(self, template: str, phrase: str = "") -> str:
        """The template with this person's names, place and job, and a skill's phrase."""
        rng = self._rng
        job, job2 = rng.sample(self._occupation.names, 2)
        return template.format(
            name=self._name,
            place=self._place,
            other=self._other,
            an_other=with_article(self._other),
            job=job,
            a_job=with_article(job),
            job2=job2,
            a_job2=with_article(job2),
            field=self._occupation.field,
            years=rng.choice(WORDS["numbers"]),
            age=rng.choice(WORDS["ages"]),
            season=rng.choice(WORDS["seasons"]),
            do=phrase,
            doing=gerund(phrase) if phrase else "",
        )


def with_article(noun: str) -> str:
    """A noun with "a" or "an"; an "u" counts as a vowel ("usher", "upholsterer").

    >>> with_article("electrician")
    'an electrician'
    """
    article = "an" if noun[0] in "aeiou" else "a"
    return f"{article} {noun}"


def gerund(phrase: str) -> str:
    """A phrase with its verbs in the -ing form.

    >>> gerund("cut hair")
    'cutting hair'
    """
    verb, _, rest = phrase.partition(" ")
    if rest.startswith("and smoke "):  # the one phrase with two verbs
        rest = "and smoking " + rest.removeprefix("and smoke ")
    return f"{_ing(verb)} {rest}"


def _ing(verb: str) -> str:
    if verb in WORDS["doubling_verbs"]:
        return verb + verb[-1] + "ing"
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")):
        return verb[:-1] + "ing"
    return verb + "ing"
