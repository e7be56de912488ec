"""README and the pages in docs/ as tests read them: their blocks of code, the commands in them, their links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`((?:make|python -m|pip install) [^`]+)`")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_ANY_NUMBER = r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: the line it begins in, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Page and line, as a test's id."""
        return f"{self.page.name}:{self.line}"


@dataclass
class Command:
    """A command behind a prompt, and the lines that the page shows as its output."""

    line: str
    output: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """What a shell makes of it."""
        return shlex.split(self.line, comments=True)


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """A page's blocks, of one language or of all."""
    text = page.read_text(encoding="utf-8")
    found = [Block(page, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in _BLOCK.finditer(text)]
    return [block for block in found if language in (None, block.language)]


def commands(block: Block) -> list[Command]:
    """The commands of a console block in turn, each with its output."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].output.append(line)
    return found


def inline_commands(page: Path) -> list[list[str]]:
    """The words of the commands in a page's running text."""
    return [shlex.split(found.replace("\\*", "*")) for found in _INLINE.findall(prose(page))]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Where a page's links and pictures lead."""
    return (match[1] for match in _LINK.finditer(prose(page)))


def anchors(page: Path) -> set[str]:
    """What links may have behind ``#``: a page's headings as GitHub spells them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_form_of(shown: str, printed: str) -> bool:
    """Whether a printed line is a shown one but for its numbers and the width of its columns."""
    parts = _NUMBER.split(" ".join(shown.split()))
    return re.fullmatch(_ANY_NUMBER.join(map(re.escape, parts)), " ".join(printed.split())) is not None


def unmatched(shown: list[str], printed: list[str]) -> str | None:
    """The first shown line that was not printed in its turn; None if all were.

    A shown "..." stands for any lines. Progress bars, which go to stderr, are left out. After the last shown line more
    may be printed only if that is a "...".
    """
    rest, skipping = list(printed), False
    for line in [line for line in shown if "%|" not in line]:
        if line == "...":
            skipping = True
            continue
        while skipping and rest and not is_form_of(line, rest[0]):
            rest.pop(0)
        if not rest or not is_form_of(line, rest.pop(0)):
            return line
        skipping = False
    return None if skipping or not rest else "(the end of the output)"
