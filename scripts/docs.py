"""Builds the book: scripts/docs.py MDBOOK TARGET

mdBook takes pages from one folder. So the pages are copied to TARGET/book-src first, with
CONTRIBUTING.md, SECURITY.md and CHANGELOG.md among them. A link from a page to a file of the tree
that is not part of the book then leads to that file, seen from TARGET/book. At the end every link
of the built pages is followed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Pages of the tree's root that are part of the book. README.md has docs/README.md in its place.
ROOT_PAGES = {ROOT / name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
HREF = re.compile(r"""(?:href|src)="([^"]+)\"""")


def place_in_book(path):
    """Where a file of the tree is in the book, from the book's root; None if it is not there."""
    if path in ROOT_PAGES:
        return pathlib.PurePosixPath(ROOT_PAGES[path])
    if path == ROOT / "README.md":
        return pathlib.PurePosixPath("README.md")
    if path.is_relative_to(DOCS):
        return pathlib.PurePosixPath(path.relative_to(DOCS))
    return None


def with_book_links(text, page, book):
    """The text of a page, with its links as the book has them."""
    own_folder = place_in_book(page).parent

    def link(match):
        target = match.group(2)
        if re.match(r"[a-z]+:|#", target):
            return match.group(0)
        path, _, anchor = target.partition("#")
        file = pathlib.Path(os.path.normpath(page.parent / path))
        place = place_in_book(file)
        # mdBook makes index.html of README.md, but knows that only in links without a heading.
        if place and anchor and place.name == "README.md":
            place = place.with_name("index.md")
        # mdBook takes every .md for a page of its own: those of other folders have their folder.
        if not place and file.suffix == ".md":
            file = file.parent
        there = book / place if place else file
        found = os.path.relpath(there, book / own_folder)
        return match.group(1) + found + ("#" + anchor if anchor else "") + match.group(3)

    return LINK.sub(link, text)


def prepare(source, book):
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source / "docs")
    shutil.copy(ROOT / "book.toml", source)
    for page in [*DOCS.rglob("*.md"), *ROOT_PAGES]:
        text = with_book_links(page.read_text(), page, book)
        (source / "docs" / place_in_book(page)).write_text(text)


def broken_links(book):
    """A line for each link of a built page to a file or a heading that is not there."""
    lines = []
    headings = {}
    for page in book.rglob("*.html"):
        headings[page.resolve()] = set(re.findall(r'id="([^"]+)"', page.read_text()))
    for page in book.rglob("*.html"):
        if page.name in ("print.html", "toc.html", "404.html"):
            continue
        for target in HREF.findall(page.read_text()):
            if re.match(r"[a-z]+:|//", target):
                continue
            path, _, anchor = urllib.parse.unquote(target).partition("#")
            path = path.split("?")[0]
            there = (page.parent / path).resolve() if path else page.resolve()
            if not there.exists():
                lines.append(f"{page.relative_to(book)} links to {target}: no such file")
            elif anchor and anchor not in headings.get(there, {anchor}):
                lines.append(f"{page.relative_to(book)} links to {target}: no such heading")
    return lines


def main():
    mdbook, target = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    source, book = target / "book-src", target / "book"
    prepare(source, book)
    subprocess.run([mdbook, "build", str(source), "--dest-dir", str(book)], check=True)
    lines = broken_links(book)
    print(*lines, sep="\n", end="\n" if lines else "")
    print(
        f"{book / 'index.html'}: {len(list(book.rglob('*.html')))} pages, {len(lines)} broken links"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
