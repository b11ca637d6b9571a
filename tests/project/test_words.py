"""Plain English in README, docs, help, messages, docstrings and names of functions.

The words and phrases below were once written here in a sense that readers had to decode. Each
has a plain counterpart, which the failure names.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from gpgc_dask.cli import app

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpgc_dask"

WORDS = {
    r"tells?|told|telling": "report, message, describe, distinguish",
    r"says?|said|saying": "report, describe, state",
    r"go(?:es)? on|went on|going on|gone on": "resume, continue",
    r"anew": "again, restart",
    r"mend(?:s|ed|ing)?": "fix",
    r"spoil(?:s|t|ed|ing)?": "corrupt",
    r"damag(?:e|es|ed|ing)": "corruption, corrupted",
    r"besides?": "next to, in addition",
    r"lies? (?:in|at|on|within|there|next to)": "is in",
    r"com(?:es?|ing) along|came along": "is included",
    r"complain(?:s|ed|ing)?": "raise",
    r"refus(?:e|es|ed|ing|al)": "reject, raise",
    r"(?:for|from) want of|wants? of": "not enough",
    r"somebody|whoever|strangers?|nobody|whosoever": "a user, the caller, others",
    r"(?<!class)rooms?": "packages, space",
    r"lest": "so that … not",
    r"befall(?:s|en)?|befell": "happen to",
    r"for people": "for reading",
    r"by hand": "manually",
    r"strokes?(?![-=:\"])": "by, per",
    r"of (?:its|their) own accord": "automatically",
    r"nights bring": "Fault tolerance",
    r"hitherto|thereof|therein|wherein|thereby|whereby|henceforth": "plain words",
}
"""What is not written, as a regular expression of whole words, and what to write."""

COUNTED = (
    r"once|twice|times|bytes|numbers|variances?|nats|rows|requests|multiply-adds(?:/s)?|ms|seconds"
    r"|[KMG]i?B(?:/s)?|superpixels|features|dicts?|tasks|columns|threads|files|matrices|noises?"
    r"|products|cores|hours"
)
ALSO_VERBS = (
    r"names?|reads?|scales?|labels?|masks?|groups?|tests?|process(?:es)?|files?|lines?|blocks?|row"
    r"|columns?|threads?|tasks?|systems?|sections?|terms?|values?|weights?|probes?|entry|entries"
    r"|batch(?:es)?|arrays?|pages?|numbers?|requests?|products?|matrix|second|brush|system|CSV"
)
"""Only counted things if a number or an article comes first: "reads a block" is no count."""
UNITS = (
    r"image|row|group|worker|feature|class|second|core|photo|superpixel|iteration|step|read|file"
    r"|chunk|page|person|annotator|line|node|partition|label|term|task|pixel|block|column|table"
    r"|thread|process|command|fold|owner|split|pod|sweep|category|minute|hour|point|target|entry"
)
NUMBER = r"(?:\d[\d,]*(?:\.\d+)?|[Oo]ne|[Tt]wo|[Tt]hree|[Ff]our|[Ff]ive)"
PER = re.compile(
    rf"\b(?:(?:{COUNTED})|{NUMBER}(?: [\w-]+)? (?:{ALSO_VERBS})|[Aa]n? (?:{ALSO_VERBS})|{NUMBER})"
    rf" an? (?:{UNITS})\b"
)
"""One variance an image, 24 bytes a row: "per" is meant."""

FRAGMENT = re.compile(r"\A(?:Of|As it|As they|That of|Those of) ")
"""How a description begins that is no phrase of its own: "Of each worker."."""

PARTICIPLES = {
    "told", "retold", "kept", "entered", "judged", "shown", "found", "given", "asked", "said",
    "made", "done", "gone", "left", "lost", "taken", "read_back", "written", "drawn", "put",
    "stood", "seen", "known", "sent", "brought", "held", "spoilt", "mended", "begun", "chosen",
}  # fmt: skip
"""Names that no function has: functions are verbs or nouns."""


def findings(text: str, *, description: bool = False) -> list[str]:
    """What is wrong with a text, each as the phrase and what to write instead."""
    text = re.sub(r"\s+", " ", text)
    found = [
        f"{match[0]!r} (instead: {instead})"
        for pattern, instead in WORDS.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]
    found += [f"{match[0]!r} (instead: per …)" for match in PER.finditer(text)]
    if description and (match := FRAGMENT.match(text)):
        found.append(f"{match[0]!r} begins a fragment: {text[:60]!r}")
    return found


def check(name: str, wrong: list[str]) -> None:
    assert not wrong, "\n".join([f"{name}:", *wrong])


# -- pages ---------------------------------------------------------------------------------

PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "SECURITY.md",
            "CHANGELOG.md",
            "deploy/README.md",
            "deploy/tested.md",
        )
    ),
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if not {"_build", "notebooks"} & {*path.relative_to(ROOT).parts}
    ),
]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages(page):
    text = page.read_text()
    if page.name == "CHANGELOG.md":
        text = re.sub(r"`[^`\n]*`", "", text)  # it lists old names
    paragraphs = text.split("\n\n")
    check(named(page), [each for text in paragraphs for each in findings(text)])


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=named)
def test_notebooks(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    check(named(notebook), [each for cell in cells for each in findings("".join(cell["source"]))])


# -- the program ---------------------------------------------------------------------------


def help_texts(command, name: str) -> Iterator[tuple[str, str]]:
    """(where, text) of all help of a command and of the commands below it."""
    yield name, command.help or ""
    yield name, command.epilog or ""
    for parameter in command.params:
        yield f"{name} {parameter.opts[0]}", getattr(parameter, "help", None) or ""
    for below, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{name} {below}")


def test_help():
    texts = [*help_texts(typer.main.get_command(app), "gpgc")]
    assert len(texts) > 100
    wrong = [
        f"{where}: {each}" for where, text in texts for each in findings(text, description=True)
    ]
    check("gpgc --help", wrong)


# -- the package ---------------------------------------------------------------------------

SOURCES = sorted(PACKAGE.rglob("*.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether it describes something) of all strings and comments."""
    tree = ast.parse(source)
    documented = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and node.body]
    docstrings = {
        id(node.body[0].value) for node in documented if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, id(node) in docstrings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False


def participles(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.strip("_") in PARTICIPLES:
            yield f"{node.lineno}: a function called {node.name}"


def wrong_in(path: Path) -> list[str]:
    source = path.read_text()
    wrong = [
        f"{line}: {each}"
        for line, text, description in texts(source)
        for each in findings(text, description=description)
    ]
    return [*wrong, *participles(source)]


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_sources(path):
    check(named(path), wrong_in(path))


# -- the list itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "One noise variance an image.",
        "24 bytes a row",
        "A line an image, two full reads a step",
        "about 51 G multiply-adds/s a core",
        "The message tells which.",
        "It goes on with --resume.",
        "Links are refused.",
        "The checkpoint lies in the folder, beside the model.",
    ],
)
def test_it_is_found(text):
    assert findings(text)


@pytest.mark.parametrize(
    "text",
    [
        "One noise variance per image.",
        "Each image is a row of the table.",
        "This gives a group of rows its weight.",
        '<line stroke="grey" stroke-width="2"/>',
        "An image has a mask.",
        "It reads a block, names a file and scales an image.",
        "Scale an image to 3. A step is one read.",
    ],
)
def test_it_is_not_found(text):
    assert not findings(text)
