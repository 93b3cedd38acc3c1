"""The collection that the project generates itself: professional profiles and advice, no download."""
