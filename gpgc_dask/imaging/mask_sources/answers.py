"""Several masks per photo: a folder of masks for each photo, or a CSV file that names the photos.

Each mask is an *answer*. Its name is that of the photo, a slash, and the name of the answer:
``horse.jpg/anna``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.paths import relative_path
from gpgc_dask.imaging.files import Pair, by_stem, find_images
from gpgc_dask.imaging.image_info import PhotoInfo, check_date, read_table
from gpgc_dask.imaging.mask_sources.base import MASK_VALUES, Item, file_stamp
from gpgc_dask.imaging.mask_sources.folder import MaskFile, MaskFolder

__all__ = ["AnswerFolder"]


class AnswerFolder(MaskFolder):
    """A folder of photos and a folder of masks with a subfolder for each photo.

    The masks of a/horse.jpg are all image files in the subfolder a/horse. With the option
    ``answers``, masks are anywhere in the folder, and a CSV file with columns mask,image and
    perhaps annotator,date names the photo of each.
    """

    options_used = MASK_VALUES | {"answers"}

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the answers of each photo."""
        photos = find_images(self.images, leave_out=self.masks)
        answers = self.options.answers
        found = self._listed(answers, photos) if answers else self._in_folders(photos)
        items, problems = [], []
        for photo, mask, answer, info in found:
            if not photo:
                problems.append(Problem(mask, answer))
                continue
            pair = Pair(f"{photo}/{answer}", str(self._image(photo)), str(self._mask(mask)))
            identity = f"{file_stamp(pair.image)} {file_stamp(pair.mask)}"
            items.append(Item(pair, identity, MaskFile(pair.mask, self.mask_format), info))
        _check_unique([item.pair.name for item in items])
        answered = {item.info.photo for item in items if item.info is not None}
        reason = f"mask missing: there is no answer for it in {answers or self.masks}"
        problems += [Problem(photo, reason) for photo in photos if photo not in answered]
        return items, problems

    def _image(self, photo: str) -> Path:
        return Path(self.images) / photo

    def _mask(self, mask: str) -> Path:
        return Path(self.masks) / mask

    def _in_folders(self, photos: list[str]) -> Iterator[tuple[str, str, str, PhotoInfo | None]]:
        """(photo, mask, answer, info) of masks in the subfolders of their photos.

        ("", mask, reason, None) stands for a mask that cannot be used.
        """
        stems = by_stem(photos)
        for mask in find_images(self.masks):
            place = PurePosixPath(unicodedata.normalize("NFC", mask))
            owner = next((str(p) for p in place.parents if str(p) in stems), None)
            if owner is None:
                yield "", mask, "mask without a photo: no folder of it is named as a photo", None
            elif len(stems[owner]) > 1:
                both = " and ".join(stems[owner])
                yield "", mask, f"{both} share one folder of answers, {owner}: rename one", None
            else:
                (photo,) = stems[owner]
                answer = str(place.relative_to(owner).with_suffix(""))
                yield photo, mask, answer, PhotoInfo(photo, photo)

    def _listed(
        self, path: str, photos: list[str]
    ) -> Iterator[tuple[str, str, str, PhotoInfo | None]]:
        """The same of the masks that a CSV file lists."""
        table = read_table(path, "mask", ("image",), "answers file")
        masks, known = set(find_images(self.masks)), set(photos)
        for title, names in (
            ("masks", [mask for mask in table if mask not in masks]),
            ("images", [line["image"] for line in table.values() if line["image"] not in known]),
        ):
            if names:
                folder = self.masks if title == "masks" else self.images
                raise InputError(
                    f"{path} names {len(names)} {title} that are not in {folder}, such as "
                    f"{names[0]}: remove those lines, or correct the paths within the folder"
                )
        for mask, line in table.items():
            photo = line["image"]
            date = check_date(line.get("date", ""), mask, path)
            info = PhotoInfo(photo, photo, line.get("annotator", ""), date)
            stem, answer = PurePosixPath(photo).with_suffix(""), relative_path(mask).with_suffix("")
            short = answer.relative_to(stem) if answer.is_relative_to(stem) else answer
            yield photo, mask, str(answer if str(short) == "." else short), info


def _check_unique(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two masks are the answer {name}: rename or remove one")
        seen.add(name)
