"""README and the pages in docs/ as tests read them: their blocks of code, the commands in them, their links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`((?:make|python -m|pip install) [^`]+)`")
_ANY_NUMBER = r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?"
_NUMBER = re.compile(_ANY_NUMBER)


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


def is_form_of(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether printed lines are the shown ones but for their numbers and the width of their columns.

    A shown "..." stands for any lines. Progress bars, which go to stderr, are left out.
    """
    pattern = "".join(_any_lines(line) for line in shown if "%|" not in line)
    text = "".join(" ".join(line.split()) + "\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def _any_lines(shown: str) -> str:
    """The pattern of the lines that a shown one stands for."""
    if shown == "...":
        return r"(?:.*\n)*"
    return _ANY_NUMBER.join(map(re.escape, _NUMBER.split(" ".join(shown.split())))) + r"\n"
