"""The collection that the project generates itself: professional profiles and advice, no download.

The texts are YAML files of this folder (``resources`` reads them), ``templates`` makes documents of
sentences in each wording, ``generator`` makes a split.
"""
