"""Draw docs/architecture.svg: the data's way through the rooms. Needs nothing but Python.

Colours are such that it can be read on white and on black: what is written stands in boxes with a
ground of their own, or in a grey that shows on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1160, 716
INK, LINE = "#1d232b", "#7f8a97"
SANS = "font-family='system-ui, sans-serif'"
MONO = "font-family='ui-monospace, Menlo, Consolas, monospace'"

COLOURS = {  # ground, border
    "photos": ("#fdebd0", "#cf8a20"),
    "numbers": ("#d9e8f8", "#3f78b5"),
    "people": ("#dbf0df", "#3c9158"),
    "under": ("#e7eaed", "#7f8a97"),
    "store": ("#ffffff", "#2f3945"),
}


@dataclass(frozen=True)
class Box:
    """A room, or several with one purpose: what it does, and the modules."""

    x: float
    y: float
    w: float
    h: float
    kind: str
    told: str
    modules: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + self.h / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.w, self.y + self.h / 2

    @property
    def top(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y + self.h

    def svg(self) -> str:
        ground, border = COLOURS[self.kind]
        shape = self._cylinder if self.kind == "store" else self._sheet
        lines = self.told.split("\n")
        y = self.y + (44 if self.kind == "store" else 26)
        texts = [
            text(self.x + self.w / 2, y + 20 * n, line, 16, SANS, "600")
            for n, line in enumerate(lines)
        ]
        y += 20 * len(lines) + 3
        texts += [
            text(self.x + self.w / 2, y + 19 * n, line, 14, MONO)
            for n, line in enumerate(self.modules)
        ]
        return shape(ground, border) + "".join(texts)

    def _sheet(self, ground: str, border: str) -> str:
        return (
            f"<rect x='{self.x}' y='{self.y}' width='{self.w}' height='{self.h}' rx='8' "
            f"fill='{ground}' stroke='{border}' stroke-width='1.5'/>"
        )

    def _cylinder(self, ground: str, border: str) -> str:
        x, y, w, h, r = self.x, self.y, self.w, self.h, 12
        style = f"fill='{ground}' stroke='{border}' stroke-width='1.5'"
        return (
            f"<path d='M{x},{y + r} a{w / 2},{r} 0 0 1 {w},0 v{h - 2 * r} "
            f"a{w / 2},{r} 0 0 1 {-w},0 z' {style}/>"
            f"<path d='M{x},{y + r} a{w / 2},{r} 0 0 0 {w},0' fill='none' stroke='{border}' "
            "stroke-width='1.5'/>"
        )


def text(x: float, y: float, told: str, size: float, font: str, weight: str = "400") -> str:
    return (
        f"<text x='{x}' y='{y}' font-size='{size}' {font} font-weight='{weight}' fill='{INK}' "
        f"text-anchor='middle'>{escape(told)}</text>"
    )


def label(x: float, y: float, told: str, anchor: str = "start", size: float = 13) -> str:
    return (
        f"<text x='{x}' y='{y}' font-size='{size}' {SANS} fill='{LINE}' text-anchor='{anchor}'>"
        f"{escape(told)}</text>"
    )


def arrow(*points: tuple[float, float]) -> str:
    path = "M" + " L".join(f"{x},{y}" for x, y in points)
    return (
        f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='2' stroke-linejoin='round' "
        "marker-end='url(#tip)'/>"
    )


def elbow(start: Box, end: Box, y: float) -> str:
    """From the bottom of a box at the right to the top of one at the left, along y."""
    (x1, y1), (x2, y2) = start.bottom, end.top
    return arrow((x1, y1), (x1, y), (x2, y), (x2, y2 - 2))


def joined(*boxes: Box) -> list[str]:
    return [arrow(a.right, (b.left[0] - 2, b.left[1])) for a, b in pairwise(boxes)]


def photos(y: float) -> tuple[list[Box], list[str]]:
    folder = Box(20, y - 2, 126, 88, "store", "photos\nand masks")
    boxes = [
        folder,
        Box(
            186,
            y,
            208,
            84,
            "photos",
            "whose mask is it",
            ("files · source", "photos · masks · coco"),
        ),
        Box(434, y, 216, 84, "photos", "one photo to rows", ("extract", "superpixels · backbones")),
        Box(
            690,
            y,
            214,
            84,
            "photos",
            "many, on a cluster",
            ("ingest · work · queue", "parts · assemble"),
        ),
        Box(944, y - 2, 196, 88, "store", "dataset", ("dataset · schema",)),
    ]
    return boxes, joined(*boxes)


def numbers(y: float) -> tuple[list[Box], list[str]]:
    check = Box(
        20, y + 10, 184, 84, "numbers", "look first", ("validation · frames", "sampling · fitting")
    )
    rows = ("oracle: numpy · dask", "tasks · kernels · blas", "leave_out · statistics")
    oracle = Box(246, y, 246, 104, "numbers", "all that touches rows", rows)
    small = ("solvers: fixed_point · lbfgs", "weights · collective", "evidence · noise")
    solver = Box(578, y, 280, 104, "numbers", "k×k and J numbers only", small)
    store = Box(944, y + 8, 196, 88, "store", "model", ("estimators · training",))
    (x1, middle), (x2, _) = oracle.right, solver.left
    arrows = [
        *joined(check, oracle),
        *joined(solver, store),
        arrow((x1, middle - 16), (x2 - 2, middle - 16)),
        arrow((x2, middle + 16), (x1 + 2, middle + 16)),
        label((x1 + x2) / 2, middle - 24, "sums", "middle"),
        label((x1 + x2) / 2, middle + 34, "noise, μ", "middle"),
    ]
    return [check, oracle, solver, store], arrows


def people(y: float) -> tuple[list[Box], list[str]]:
    boxes = [
        Box(20, y, 184, 84, "people", "worst first", ("ranking · metrics",)),
        Box(246, y, 164, 84, "people", "lists, folders", ("selection", "export")),
        Box(450, y, 210, 84, "people", "pages, notebooks", ("report", "showing")),
        Box(700, y, 204, 84, "people", "masks again", ("prediction · painting", "evaluation")),
        Box(944, y, 196, 84, "people", "the paper's tables", ("experiments", "svm · nested")),
    ]
    return boxes, joined(*boxes[:2])


def under(y: float) -> list[Box]:
    columns = [
        (20, "the cluster", ("cluster · endurance", "interrupts · deploy")),
        (304, "files anywhere", ("storage · objects · retrying", "paths · persistence")),
        (588, "nothing gets lost", ("guarded · damage", "checkpoint")),
        (872, "what it will cost", ("planning · machine", "progress · live · meter")),
    ]
    return [Box(x, y, 268, 84, "under", told, modules) for x, told, modules in columns]


def draw() -> str:
    first, first_arrows = photos(116)
    second, second_arrows = numbers(286)
    third, third_arrows = people(466)
    fourth = under(616)
    cli = Box(20, 16, WIDTH - 40, 48, "under", "")
    way = [
        elbow(first[-1], second[0], 242),
        elbow(second[-1], third[0], 424),
        *(arrow((box.top[0], 424), (box.top[0], box.y - 2)) for box in third[2:]),
    ]
    labels = [
        label(20, 104, "PHOTOS"),
        label(20, 284, "NUMBERS"),
        label(20, 454, "PEOPLE"),
        label(20, 604, "UNDERNEATH"),
    ]
    told = "cli: a module a command, no logic of its own; the same from Python"
    bar = text(WIDTH / 2, 46, told, 16, SANS, "600")
    boxes = [*first, *second, *third, *fourth]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
        "aria-label='Photos and masks become a dataset, the dataset a model, the model rankings, "
        "pages and masks'>"
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='8' refY='5' markerWidth='7' "
        f"markerHeight='7' orient='auto-start-reverse'><path d='M0,0 L10,5 L0,10 z' fill='{LINE}'/>"
        "</marker></defs>"
        + cli.svg()
        + bar
        + "".join([*way, *first_arrows, *second_arrows, *third_arrows])
        + "".join(labels)
        + "".join(box.svg() for box in boxes)
        + "</svg>\n"
    )


if __name__ == "__main__":
    target = Path(__file__).with_suffix(".svg")
    target.write_text(draw())
    print(f"wrote {target.name}")
