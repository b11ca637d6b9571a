"""The check of photos and masks that comes before workers and networks are started."""

from __future__ import annotations

import logging
from os import PathLike

from gpgc_dask.core.errors import InputError, PipelineError, list_problems
from gpgc_dask.imaging.mask_advice import classes_file, suggest_options
from gpgc_dask.imaging.mask_sources import MaskOptions, MaskSource, open_source
from gpgc_dask.imaging.mask_survey import MaskSurvey, survey_masks
from gpgc_dask.pipelines.batches import problem_error
from gpgc_dask.pipelines.options import OnError

__all__ = ["check_masks", "propose_classes"]

logger = logging.getLogger(__name__)


def check_masks(source: MaskSource, on_error: OnError) -> MaskSurvey:
    """Check names, headers and a sample of the masks.

    Parameters
    ----------
    source : MaskSource
        Photos and masks.
    on_error : {"raise", "skip"}
        Whether unusable files are an error.

    Returns
    -------
    MaskSurvey
        What was found. Conversions are logged.

    Raises
    ------
    PipelineError
        If files cannot be used: with ``on_error="raise"`` some, else all that were checked. The
        message lists each kind of problem once, what was found, and the options to use.
    """
    survey = survey_masks(source.items, source.mask_format)
    problems = [*source.problems, *survey.problems]
    unusable = len(survey.problems) == survey.checked
    if problems and (on_error == "raise" or unusable):
        advice = f"Found: {survey.describe()}.\n" if source.items else ""
        options = suggest_options(survey.tally, source.mask_format) if survey.problems else ""
        if options:
            advice += f"Use: {options}\n"
        if on_error == "raise":
            raise problem_error(problems, advice=advice)
        listed = list_problems(problems)
        raise PipelineError(
            f"none of the images could be used:\n{listed}\n{advice}".rstrip(), problems
        )
    for sentence in survey.conversions():
        logger.warning("%s", sentence)
    return survey


def propose_classes(
    images: str | PathLike[str], masks: str | PathLike[str], options: MaskOptions
) -> tuple[str, str]:
    """A file of the values or colours that masks have, and a description of the masks.

    Parameters
    ----------
    images, masks : path
        Folders of photos and masks.
    options : MaskOptions
        Format of the masks, and suffixes of their names.

    Returns
    -------
    content, description : str
        Lines value,name or r,g,b,name with names to be changed; one line.
    """
    survey = survey_masks(open_source(images, masks, options).items, options.mask_format)
    if not survey.tally.masks:
        raise InputError(f"{masks} has no mask whose values could be read: {survey.describe()}")
    return classes_file(survey.tally), survey.describe()
