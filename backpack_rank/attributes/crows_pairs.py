"""Word pairs out of CrowS-Pairs (Nangia et al. 2020), by the rule in the code of Afzali et al."""

from __future__ import annotations

import csv
import string
from pathlib import Path

from backpack_rank.files import read_text

_COLUMNS = ("sent_more", "sent_less", "bias_type")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def crows_pairs(path: str | Path, bias_type: str = "gender") -> list[tuple[str, str]]:
    """Get the pairs of words in which the sentences of CrowS-Pairs differ.

    ::

        pairs = crows_pairs("crows_pairs_anonymized.csv")  # [("she", "he"), ("women", "men"), ...]

    Of each two sentences with the same number of words, split at blanks, that differ in exactly one
    word, the pair is that word in both: lower case, without punctuation. Many of the pairs of
    ``bias_type=gender`` are first names.

    Args:
        path: the published CSV (CC BY-SA 4.0, github.com/nyu-mll/crows-pairs), which is not part of
            this project.
        bias_type: whose sentences count.

    Returns:
        The pairs in the order of the file, each once.

    Raises:
        ValueError: a column is missing, or no sentences of that type give a pair.
    """
    lines = read_text(Path(path)).splitlines()
    rows = csv.DictReader(lines)
    missing = [column for column in _COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(
            f"{path}: line 1 has no column {', '.join(missing)}; give crows_pairs_anonymized.csv "
            "of github.com/nyu-mll/crows-pairs"
        )
    pairs: dict[tuple[str, str], None] = {}
    types = set()
    for row in rows:
        types.add(row["bias_type"])
        if row["bias_type"] != bias_type:
            continue
        pair = _differing_words(row["sent_more"] or "", row["sent_less"] or "")
        if pair is not None:
            pairs[pair] = None
    if not pairs:
        raise ValueError(
            f"{path}: no two sentences with bias_type={bias_type} differ in one word; the file has "
            f"{', '.join(sorted(map(str, types))) or 'no rows'}"
        )
    return list(pairs)


def _differing_words(first: str, second: str) -> tuple[str, str] | None:
    """The one word in which two sentences differ, in both of them; None: there is not just one."""
    first_words, second_words = first.split(), second.split()
    if len(first_words) != len(second_words):
        return None
    differing = []
    for pair in zip(first_words, second_words, strict=True):
        if pair[0] != pair[1]:
            differing.append(pair)
    if len(differing) != 1:
        return None
    first, second = differing[0]
    first = first.lower().translate(_NO_PUNCTUATION)
    second = second.lower().translate(_NO_PUNCTUATION)
    # Words that differed in case or punctuation alone are no pair, nor is a dash beside a word.
    if not first or not second or first == second:
        return None
    return first, second
