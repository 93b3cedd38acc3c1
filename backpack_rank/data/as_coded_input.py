"""Query and document as the code of Afzali et al. joins them, which is not what the paper says.

The code trains and measures effectiveness on texts without a separator, and measures bias on texts
with a separator and without an end. Both are here so that its numbers can be compared.
"""

from __future__ import annotations

import numpy as np

from backpack_rank.data.tokenisation import PairTokenizer


class UnseparatedPairTokenizer(PairTokenizer):
    """With ``input_form=as_coded`` where a text is read at one token.

    A pair is [start, query, document, end]. The authors read the last of many tokens of padding;
    here there is one token behind the document, the end.
    """

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit behind the query, whose ids are given."""
        return self.max_length - len(self.start) - len(query) - 1

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, document, end], the document cut to fit ``max_length``."""
        end = np.array([self.end_id], dtype=np.int32)
        return np.concatenate([self.start, query, document[: self.room(query)], end])


class EndlessPairTokenizer(PairTokenizer):
    """With ``input_form=as_coded`` where a text is read at all its tokens.

    A pair is [start, query, separator, document].
    """

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit behind the query, whose ids are given."""
        return self.max_length - len(self.start) - len(query) - 1

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, separator, document], the document cut to fit ``max_length``."""
        separator = np.array([self.separator_id], dtype=np.int32)
        return np.concatenate([self.start, query, separator, document[: self.room(query)]])
