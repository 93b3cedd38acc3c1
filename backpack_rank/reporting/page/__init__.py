"""One self-contained ``report.html``: plain data in, a page out that needs no network.

``build.page_of_rows`` makes the sections that come from measures, ``dataclasses.replace`` adds the
others, and ``render.write_page`` writes the page; ``pictures.write_pictures`` writes its figures as
PNG and SVG files.
"""
