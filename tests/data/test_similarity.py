"""Word-similarity lists in the layouts they are published in."""

import gzip

import pytest

from backpack_rank.data.similarity import WordPair, read_similarity

SIMLEX = (
    "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n"
    "old\tnew\tA\t1.58\t2.72\t2.81\t2\t7.25\t1\t0.41\n"
    "smart\tintelligent\tA\t9.2\t1.75\t2.46\t1\t7.11\t1\t0.67\n"
    "hard\tdifficult\tA\t8.77\t3.76\t2.21\t2\t5.94\t1\t1.19\n"
)
WANTED = (WordPair("old", "new", 1.58), WordPair("smart", "intelligent", 9.2), WordPair("hard", "difficult", 8.77))


def read(tmp_path, text, name="list.txt"):
    (tmp_path / name).write_text(text)
    return read_similarity(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        SIMLEX,
        "old;new;1.58\nsmart;intelligent;9.2\nhard;difficult;8.77\n",
        "# a comment\nold\tnew\t1.58\nsmart\tintelligent\t9.2\n\nhard\tdifficult\t8.77",
        "old new 1.58\nsmart   intelligent 9.2\nhard difficult 8.77\n",
        "Word 1,Word 2,Human (mean),1,2\nold,new,1.58,1,2\nsmart,intelligent,9.2,9,9\nhard,difficult,8.77,9,8\n",
        "old\tnew\tV\t1.58\tANTONYMS\nsmart\tintelligent\tV\t9.2\tSYNONYMS\nhard\tdifficult\tV\t8.77\tSYNONYMS\n",
        'score,id,word2,word1\n1.58,1,"new","old"\n9.2,2,intelligent,smart\n8.77,3,difficult,hard\n',
    ],
    ids=["SimLex-999", "RG-65", "tabs", "spaces", "WordSim-353", "SimVerb-3500", "named columns"],
)
def test_published_layouts_are_read(tmp_path, text):
    assert read(tmp_path, text).pairs == WANTED


def test_a_word_that_is_the_name_of_a_column_makes_no_header(tmp_path):
    assert read(tmp_path, "score,goal,5\na,b,1\nc,d,2\n").pairs[0] == WordPair("score", "goal", 5.0)


def test_a_list_is_called_as_its_file(tmp_path):
    assert read(tmp_path, SIMLEX, "SimLex-999.txt").name == "SimLex-999"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(SIMLEX.encode()))
    assert read_similarity(tmp_path / "a.csv.gz").name == "a"
    assert read_similarity(tmp_path / "a.csv.gz").pairs == WANTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,1\nc,d\ne,f,2\n", r"line 2: expected two words and a judgement in column 3, got \['c', 'd'\]"),
        ("a,b,1\nc,d,high\n", "line 2: the judgement of 'c' and 'd' must be a finite number, got 'high'"),
        ("a,b,1\nc,d,nan\n", "line 2: the judgement of 'c' and 'd' must be a finite number"),
        ("a,b,1\n,d,2\n", "line 2: a word is missing"),
        ("word1,word2,score\na,b,1\nc,d,2\n", "a correlation needs at least three word pairs"),
        ("a,b,1\nc,d,1\ne,f,1\n", "with different judgements"),
        ("word1,word2,rating\na,b,many\n", r"line 2: no number behind the two words in \['a', 'b', 'many'\]"),
        ("", "needs at least three"),
    ],
)
def test_damaged_lists_are_named(tmp_path, text, said):
    with pytest.raises(ValueError, match=rf"list\.txt.*{said}"):
        read(tmp_path, text)
