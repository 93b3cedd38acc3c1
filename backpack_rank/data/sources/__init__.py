"""The places a collection comes from.

Each loader returns a :class:`Collection` of :mod:`backpack_rank.data.collection` and can be a
``_target_`` in ``conf/data``.

    beir.load_beir      a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/)
    irds.load_irds      an id of ir_datasets
    trec.load_trec      single files in the forms of TREC
    inline.load_inline  texts in Python or in a configuration
    union.load_union    several collections as one, for training

Nothing is imported here: ir_datasets takes a second, and most collections do without it.
"""
