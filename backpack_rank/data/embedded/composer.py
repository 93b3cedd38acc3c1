"""Putting sentences together: a draft is a document whose gendered words are still slots."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from backpack_rank.data.embedded import phrases, templates
from backpack_rank.data.embedded.gendered import count_slots
from backpack_rank.data.embedded.occupations import Occupation
from backpack_rank.data.embedded.skills import SKILLS, gerund

MIN_WORDS, MAX_WORDS = 30, 120
MIN_GENDERED, MAX_GENDERED = 2, 6


@dataclass(frozen=True)
class Skill:
    """One skill: the occupation it belongs to and its place in ``SKILLS``."""

    occupation: str
    index: int

    @property
    def phrases(self) -> tuple[str, str, str]:
        return SKILLS[self.occupation][self.index]


@dataclass(frozen=True)
class Draft:
    """A document before its wording is chosen.

    Attributes:
        occupation: key of the occupation the document is about, or None when it only mentions one.
        skills: the skills that it says the person (or a good one) has.
        text: sentences with slots for ``gendered.render``.
    """

    occupation: str | None
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
    templates.PROFILE_OPENINGS,
    templates.PROFILE_CLAIMS,
    templates.JOB_MENTIONS + templates.JOB_REMARKS,
    templates.BUSINESS + templates.PRIVATE + templates.DUTIES[:4],
)
_HIRING = _Kind(templates.HIRING_OPENINGS, templates.HIRING_CLAIMS, templates.JOB_REMARKS, templates.HIRING_TIPS)
_CAREER = _Kind(templates.CAREER_OPENINGS, templates.CAREER_CLAIMS, templates.JOB_REMARKS, templates.CAREER_TIPS)
_OUTSIDER = _Kind(
    templates.OUTSIDER_OPENINGS,
    templates.OUTSIDER_MENTIONS + templates.DENIALS,
    templates.OUTSIDER_EXTRAS,
    templates.PRIVATE,
)


class Composer:
    """Writes drafts; all choices come from the generator of random numbers that it is given."""

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
        """A profile in the occupation that speaks of everyday duties and names no skill of the catalogue."""
        return self._compose(_PROFILE, occupation, (), claims=False)

    def outsider(self, occupation: Occupation, mentioned: Skill) -> Draft:
        """A person outside the catalogue; the occupation and the skill are only mentioned."""
        draft = self._compose(_OUTSIDER, occupation, (mentioned,), claims=False)
        return Draft(None, (), draft.text)

    def _compose(self, kind: _Kind, occupation: Occupation, skills: Sequence[Skill], claims: bool) -> Draft:
        """Draw until the number of words and of gendered words is within the bounds."""
        while True:
            text = self._attempt(kind, occupation, skills, claims)
            all_slots, word_slots = count_slots(text)
            # titles add a word when they are rendered, so the bounds hold with one word to spare per slot
            words = len(text.split())
            if (
                word_slots >= MIN_GENDERED
                and all_slots <= MAX_GENDERED
                and MIN_WORDS <= words <= MAX_WORDS - MAX_GENDERED
            ):
                return Draft(occupation.key, tuple(skills) if claims else (), text)

    def _attempt(self, kind: _Kind, occupation: Occupation, skills: Sequence[Skill], claims: bool) -> str:
        rng = self._rng
        person = _Person(rng, occupation)
        opening = person.fill(rng.choice(kind.openings))
        sentences = kind.claims if claims or kind is _OUTSIDER else templates.DENIALS
        again = _SECOND_MENTION if claims else _SECOND_MENTION_UNCLAIMED
        spoken = [phrase for skill in skills for phrase in self._phrases(skill, again)]
        body = [
            person.fill(sentence, phrase)
            for sentence, phrase in zip(rng.sample(sentences, len(spoken)), spoken, strict=True)
        ]
        if not skills:
            body += [person.fill(sentence) for sentence in rng.sample(templates.DUTIES, 2)]
        if rng.random() < _JOB_MENTION:
            body.append(person.fill(rng.choice(kind.about_job)))
        body += self._fillers(kind, person, [opening, *body])
        rng.shuffle(body)
        return " ".join([opening, *body])

    def _phrases(self, skill: Skill, again: float) -> list[str]:
        """One of the skill's phrases, with probability ``again`` two different ones."""
        return self._rng.sample(skill.phrases, 2 if self._rng.random() < again else 1)

    def _fillers(self, kind: _Kind, person: _Person, sentences: list[str]) -> list[str]:
        """Sentences that name no skill, up to a length drawn for the document."""
        wanted = min(MIN_WORDS + self._rng.expovariate(1 / _MEAN_EXTRA_WORDS), MAX_WORDS - 20)
        words = sum(len(sentence.split()) for sentence in sentences)
        slots = sum(count_slots(sentence)[0] for sentence in sentences)
        chosen: list[str] = []
        for template in self._rng.sample(kind.fillers, len(kind.fillers)):
            if words >= wanted:
                break
            if slots + count_slots(template)[0] > MAX_GENDERED:
                continue
            sentence = person.fill(template)
            if sentence in sentences:  # a profile's fillers share some sentences with its duties
                continue
            chosen.append(sentence)
            words += len(sentence.split())
            slots += count_slots(template)[0]
        return chosen


_MEAN_EXTRA_WORDS = 14
_SECOND_MENTION = 0.35
# Who only mentions a skill mentions it more often, so that matching words alone mislead.
_SECOND_MENTION_UNCLAIMED = 1.0
_JOB_MENTION = 0.9


class _Person:
    """Fills templates; surname, title, place and outside work stay the same within one document."""

    def __init__(self, rng: random.Random, occupation: Occupation) -> None:
        self._rng = rng
        self._occupation = occupation
        self._name = rng.choice(("", "[mr_ms]", "[mr_mrs]", "")) + rng.choice(phrases.SURNAMES)
        self._place = rng.choice(phrases.PLACES)
        self._other = rng.choice(phrases.OTHER_WORK)

    def fill(self, template: str, phrase: str = "") -> str:
        """The template with this person's names, place and job, and a skill's phrase where it asks for one."""
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
            years=rng.choice(phrases.NUMBERS),
            age=rng.choice(phrases.AGES),
            season=rng.choice(phrases.SEASONS),
            do=phrase,
            doing=gerund(phrase) if phrase else "",
        )


def with_article(noun: str) -> str:
    """ "an electrician", "a plumber"; an "u" counts as a vowel ("usher", "upholsterer")."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
