"""Word pairs from CrowS-Pairs."""

import pytest

from backpack_rank.attributes.crows_pairs import crows_pairs

HEADER = ",sent_more,sent_less,stereo_antistereo,bias_type,annotations,anon_writer,anon_annotators"


@pytest.fixture
def crows(tmp_path):
    """A function that writes a file in the published layout, from (sentence, sentence, type)."""

    def write(*rows):
        lines = [HEADER]
        for number, (more, less, kind) in enumerate(rows):
            lines.append(f'{number},"{more}","{less}",stereo,{kind},[],a0,[]')
        path = tmp_path / "crows_pairs_anonymized.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def test_a_pair_is_the_one_word_in_which_two_sentences_differ(crows):
    path = crows(
        ("She was kind, he said.", "He was kind, he said.", "gender"),
        ("We met Gina.", "We met Roger.", "gender"),
        ("The women left early", "The men left early", "gender"),
        ("Again women left", "Again men left", "gender"),  # the same words once more
        ("His car broke", "Her bike broke", "gender"),  # two words differ
        ("A man spoke", "A very old woman spoke", "gender"),  # other lengths
        ("The Dutch left", "The poor left", "nationality"),  # another type
        ("She left", "She left!", "gender"),  # punctuation alone
    )
    assert crows_pairs(path) == [("she", "he"), ("gina", "roger"), ("women", "men")]
    assert crows_pairs(path, "nationality") == [("dutch", "poor")]


def test_a_type_without_pairs_names_those_of_the_file(crows):
    path = crows(("The Dutch left", "The poor left", "nationality"))
    with pytest.raises(ValueError, match=r"bias_type=gender differ .* the file has nationality"):
        crows_pairs(path)


def test_another_file_is_refused_with_the_missing_columns(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("female,male\nshe,he\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 has no column sent_more, sent_less, bias_type"):
        crows_pairs(path)
