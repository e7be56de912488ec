"""README and docs/: the README's length and order, links that lead somewhere, pictures that are shown, words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.documents import PAGES, README, ROOT, anchors, blocks, commands, is_form_of, links, prose

MOST_WORDS = 1200
EXAMPLES = ROOT / "examples"


def page_name(page: Path) -> str:
    return page.name


def test_the_readme_is_short_and_its_first_block_is_a_training_loop() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
    first = blocks(README)[0]
    assert first.language == "python" and first.text.count("\n") == 15
    assert "loss.backward()" in first.text and "optimizer.step()" in first.text
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles == [
        "Install", "Train", "The loss beside PyTorch's", "Speed", "Extend", "Where things are", "Read on",
    ]  # fmt: skip


def test_the_readme_says_in_four_sentences_what_this_is() -> None:
    opening = README.read_text(encoding="utf-8").partition("\n## ")[0].partition("\n\n")[2]
    assert len(re.findall(r"[.!?](?=\s|$)", opening.strip())) == 4


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = {README}, [README]
    while waiting:
        page = waiting.pop()
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link}
        new = {target for target in targets if target.suffix == ".md"} - reached
        reached |= new
        waiting += new
    assert set(PAGES) <= reached


def test_every_picture_in_docs_is_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    pictures = {path for path in (ROOT / "docs").iterdir() if path.suffix in (".svg", ".png")}
    assert pictures <= shown


def test_every_example_is_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    scripts = {path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text()}
    scripts.remove("paper_sides.py")  # reproduce_paper.py starts it
    assert len(scripts) == 11
    assert not [name for name in scripts if name not in text]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_blocks_have_a_language_that_is_tested(page: Path) -> None:
    """Python and console blocks run in tests/system/test_documents.py, which looks at batch jobs' commands too.

    Only a drawing has no language.
    """
    for block in blocks(page):
        known = block.language in ("python", "console", "bash")
        assert known or (block.language == "" and page.name == "design.md"), block
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "console":
            assert block.text.startswith("$ ") and commands(block)


def test_claims_that_were_too_wide_do_not_come_back() -> None:
    told = [*PAGES, ROOT / "pyproject.toml", ROOT / "alpha/__init__.py"]
    for page in told:
        text = " ".join(page.read_text(encoding="utf-8").split()).lower()
        for claim in ("never compute with a zero", "never touch a zero", "no blas"):
            assert claim not in text, f"{page.name}: Winograd's products and NumPy's BLAS make {claim!r} too wide"


def test_prose_has_whole_words() -> None:
    """No abbreviation of our own, and none of the usual ones that a reader has to expand."""
    for page in PAGES:
        found = re.findall(r"\b(?:etc|cf|resp|w/o|fwd|bwd|perf)\b", prose(page))
        assert not found, f"{page.name}: {found}"


def test_output_is_compared_in_form() -> None:
    assert is_form_of(["loss 1.4283, 48.0 %, 150 images/s"], ["loss 0.9, 7.25 %, 1,024 images/s"])
    assert is_form_of(["most 8.88e-14"], ["most 1e-10"])
    assert is_form_of(["airplane      1000    715"], ["airplane 1000 7"])
    assert not is_form_of(["loss 1.4283"], ["loss nan"])
    assert not is_form_of(["test accuracy: 57.7 %"], ["test accuracy: 57.7"])
    printed = ["epoch 1: loss 2.0", "epoch 2: loss 1.0", "done"]
    assert is_form_of(["epoch 1: loss 0.1", "bar: 100%|###|", "...", "epoch 9: loss 0.2", "done"], printed)
    assert is_form_of(["epoch 1: loss 0.1", "..."], printed)
    assert not is_form_of(["epoch 1: loss 0.1", "done"], printed)
    assert not is_form_of(["epoch 1: loss 0.1"], printed)
    assert not is_form_of(["...", "end"], printed)
