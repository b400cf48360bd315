"""Rules on the names of regions and of AWS's own images, by what is known of them offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import ne

from launcher.errors import SpecPath, did_you_mean
from launcher.request.image_uris import ECR, image_region, image_table
from launcher.request.known_images import (
    accounts_of,
    has_tag,
    known_accounts,
    known_regions,
    known_repositories,
    known_tags,
)
from launcher.request.view import IMAGE, Draft
from launcher.rules.rule import Mistake, warning
from launcher.spec.aws_model import shown
from launcher.spec.job import Image

_LONG = 60  # characters of a name that are compared with others


@warning("region-unknown")
def region_is_known(draft: Draft) -> Iterator[Mistake]:
    """A misspelt region has no endpoint and no registry. The installed botocore knows all regions of its day."""
    if isinstance(draft.spec.image, Image):
        return  # image-unknown
    path: SpecPath = ("region",)
    region = draft.spec.region
    if region is None:
        path, region = IMAGE, image_region(draft.image)
    known = known_regions()
    # region-name reports what has not even the form of a region.
    if region and known and region not in known and re.fullmatch(r"[a-z]{2,4}(?:-[a-z]+)+-\d", region):
        hint = did_you_mean(region[:_LONG], known)
        what = f"{shown(region)} is not a region that the installed botocore knows{hint}"
        yield path, f"{what}; if it is newer, update boto3 or write --ignore region-unknown"


@warning("image-of-aws")
def image_of_aws_is_known(draft: Draft) -> Iterator[Mistake]:
    """Only AWS stores images in its registries, so one that the bundled table lacks is probably misspelt."""
    found = ECR.fullmatch(draft.image)
    if found is None or isinstance(draft.spec.image, Image):
        return  # an image to look up is from the table
    account, region, repository = found.groups()
    tag = draft.image.partition("@")[0].partition(":")[2]
    accounts, tags = accounts_of(repository, region), known_tags(repository)
    ignore = f"if AWS has added it since {image_table()['date']}, write --ignore image-of-aws"
    if account not in known_accounts():
        for other in accounts:
            if sum(map(ne, account, other)) <= 2:  # one digit is wrong, or two are exchanged
                what = f"is in account {account}, but AWS's with {repository} in {region} is {other}"
                yield IMAGE, f"{what}; correct it"
    elif repository not in known_repositories():
        hint = did_you_mean(repository[:_LONG], known_repositories())
        yield IMAGE, f"is in an account of AWS, which has no repository {shown(repository)}{hint}; {ignore}"
    elif accounts and account not in accounts:
        message = (
            f"is in account {account}, but AWS's account with {repository} in {region} is {min(accounts)}; write that"
        )
        yield IMAGE, message
    elif tag and tags and not has_tag(repository, tag):
        version = re.match(r"\d+(?:\.\d+)?", tag)
        same = [known for known in tags if version and re.match(rf"{re.escape(version[0])}(?!\d)", known)]
        hint = did_you_mean(tag[:_LONG], same or tags) or f"; it has {', '.join(tags[-3:])}"
        yield IMAGE, f"has a tag that AWS's {repository} does not have{hint}; {ignore}"
