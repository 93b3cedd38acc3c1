"""What the list of needs finds and misses: its precision and recall on 200 queries read by hand.

::

    BACKPACK_RANK_DATA=FOLDER python -m benchmarks.needs [--list NAME_OR_FILE] [--show]

``needs.csv`` has the collection and the id of 200 queries of SQuAD and MS MARCO without a
class word, and whether a reader says that they ask for a need that one group alone has. They are

- all 43 queries with a word of the list as it first was;
- all 111 queries with kindred words, such as *fertility*, *birth control*, *embryo* or *hormone*,
  among them those of the nine words that were added then. So precision is that of all it finds;
- 46 drawn from those with words that are further off, such as *period* or *labour*.

Recall is that among these 200. Needs that none of these words tells are in neither figure.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

from backpack_rank.attributes.lexicon import load_lexicon
from backpack_rank.data.queries import read_queries_jsonl
from backpack_rank.data.words import word_tokens

LABELS = Path(__file__).parent / "needs.csv"


def main() -> None:
    """Read, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", default="gender_needs", help="a word list, by name or file")
    parser.add_argument("--show", action="store_true", help="print the mistakes")
    given = parser.parse_args()
    words = set(load_lexicon(given.list).words)
    found = wrong = missed = 0
    for text, asks in read_queries():
        is_found = not words.isdisjoint(word_tokens(text))
        found += is_found and asks
        wrong += is_found and not asks
        missed += asks and not is_found
        if given.show and is_found != asks:
            print("found wrongly" if is_found else "missed       ", text)
    print(f"{len(words)} words: precision {found / (found + wrong):.2f} of {found + wrong} found, ")
    print(f"recall {found / (found + missed):.2f} of {found + missed} that ask")


def read_queries() -> list[tuple[str, bool]]:
    """Text and label of every query that was read."""
    with open(LABELS, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts: dict[tuple[str, str], str] = {}
    for collection in sorted({row["collection"] for row in rows}):
        folder = Path(os.environ["BACKPACK_RANK_DATA"], collection)
        (path,) = folder.glob("queries.jsonl*")
        for query_id, text in read_queries_jsonl(path).items():
            texts[collection, query_id] = text
    return [(texts[row["collection"], row["query"]], row["asks"] == "1") for row in rows]


if __name__ == "__main__":
    main()
