"""A plugin of FiftyOne: find the bad masks of a dataset, and show them worst first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import fiftyone.operators as foo
from fiftyone.operators import types

from . import judging
from .samples import label_fields


class _Judge(foo.Operator):
    """What the operators that write fields have in common."""

    name: str
    label: str
    description: str

    @property
    def config(self) -> foo.OperatorConfig:
        return foo.OperatorConfig(
            name=self.name,
            label=self.label,
            description=self.description,
            dynamic=True,
            allow_delegated_execution=True,
        )

    def resolve_input(self, ctx: Any) -> types.Property:
        inputs = types.Object()
        inputs.view_target(ctx)
        self.add_inputs(ctx, inputs)
        inputs.str(
            "prefix",
            default="",
            label="Prefix",
            description="What the names of the written fields begin with",
        )
        return types.Property(inputs, view=types.View(label=self.label))

    def add_inputs(self, ctx: Any, inputs: types.Object) -> None:
        raise NotImplementedError

    def judge(self, ctx: Any, view: Any, prefix: str) -> judging.Judged:
        raise NotImplementedError

    def execute(self, ctx: Any) -> dict[str, int]:
        prefix = ctx.params.get("prefix") or ""
        view = ctx.target_view()
        judged = self.judge(ctx, view, prefix)
        if not ctx.delegated:
            ctx.ops.reload_dataset()
            ctx.ops.set_view(judging.worst_first(view, prefix=prefix))
        return asdict(judged)

    def resolve_output(self, ctx: Any) -> types.Property:
        outputs = types.Object()
        outputs.int("images", label="Masks that were judged")
        outputs.int("suspect", label="Suspect masks")
        outputs.int("skipped", label="Files that could not be read")
        return types.Property(outputs, view=types.View(label=self.label))


def _add_field(ctx: Any, inputs: types.Object) -> None:
    fields = label_fields(ctx.view)
    inputs.enum(
        "field",
        fields,
        required=True,
        default=fields[0] if fields else None,
        label="Masks",
        description="Segmentations, detections with masks, or polylines",
    )


class FindBadMasks(_Judge):
    """Judge masks without a model: ingest, fit and review."""

    name = "find_bad_masks"
    label = "Masks: find the bad ones"
    description = "Fits a model to the masks themselves and judges each of them by the others"

    def add_inputs(self, ctx: Any, inputs: types.Object) -> None:
        _add_field(ctx, inputs)
        inputs.str("folder", required=True, label="New folder for the dataset and the model")

    def judge(self, ctx: Any, view: Any, prefix: str) -> judging.Judged:
        params = ctx.params
        return judging.find_bad_masks(view, params["field"], params["folder"], prefix=prefix)


class ScoreMasks(_Judge):
    """Judge masks by a model that has not seen them."""

    name = "score_masks"
    label = "Masks: score by a model"
    description = "Estimates the quality of masks that a model of gpgc fit has never seen"

    def add_inputs(self, ctx: Any, inputs: types.Object) -> None:
        _add_field(ctx, inputs)
        inputs.str("model", required=True, label="Model", description="Path or URL")

    def judge(self, ctx: Any, view: Any, prefix: str) -> judging.Judged:
        return judging.score_masks(view, ctx.params["field"], ctx.params["model"], prefix=prefix)


class LoadReview(_Judge):
    """Take the results of a fit outside of FiftyOne."""

    name = "load_review"
    label = "Masks: load the review of a model"
    description = "Writes what a model of gpgc fit has found into the samples of its photos"

    def add_inputs(self, ctx: Any, inputs: types.Object) -> None:
        inputs.str("model", required=True, label="Model", description="Path or URL")

    def judge(self, ctx: Any, view: Any, prefix: str) -> judging.Judged:
        return judging.load_review(view, ctx.params["model"], prefix=prefix)


class ShowWorstMasks(foo.Operator):
    """Sort the view."""

    @property
    def config(self) -> foo.OperatorConfig:
        return foo.OperatorConfig(name="show_worst_masks", label="Masks: show the worst first")

    def resolve_input(self, ctx: Any) -> types.Property:
        inputs = types.Object()
        inputs.str("prefix", default="", label="Prefix of the fields")
        return types.Property(inputs)

    def execute(self, ctx: Any) -> None:
        prefix = ctx.params.get("prefix") or ""
        ctx.ops.set_view(judging.worst_first(ctx.view, prefix=prefix))


def register(plugin: Any) -> None:
    """Register the operators; FiftyOne calls this."""
    for operator in (FindBadMasks, ScoreMasks, LoadReview, ShowWorstMasks):
        plugin.register(operator)
