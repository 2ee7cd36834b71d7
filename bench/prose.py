"""Prose of the pages that measurements write."""

import textwrap

COLUMNS = 100


def filled(text):
    """The paragraphs of a text, each filled to COLUMNS. Words keep their hyphens."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    fill = {"width": COLUMNS, "break_long_words": False, "break_on_hyphens": False}
    return "\n\n".join(textwrap.fill(paragraph, **fill) for paragraph in paragraphs)
