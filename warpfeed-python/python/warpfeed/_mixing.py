"""Mixing of batches by torchvision's and timm's objects, as warpfeed writes it."""

from __future__ import annotations

from typing import Any

from ._arguments import shown
from ._errors import UnsupportedError


def convert(mix: Any) -> tuple[str, str | None]:
    """The written mix, and the targets that it needs."""
    if isinstance(mix, str):
        return mix, None
    # By the classes themselves: others have these names too.
    kind = type(mix)
    place = {"torchvision.transforms.v2": "v2.", "timm.data.mixup": "timm."}
    name = next((of + kind.__name__ for module, of in place.items() if kind.__module__.startswith(module)), "")
    if name in ("v2.MixUp", "v2.CutMix"):
        alphas = f"{mix.alpha:g}/0" if name == "v2.MixUp" else f"0/{mix.alpha:g}"
        return f"torchvision={alphas}", _targets(mix.num_classes, 0.0)
    if name == "v2.RandomChoice":
        kinds = {type(one).__name__: one for one in mix.transforms}
        weights = getattr(mix, "p", None)
        if set(kinds) == {"MixUp", "CutMix"} and (weights is None or len({float(p) for p in weights}) == 1):
            one = kinds["MixUp"]
            return f"torchvision={one.alpha:g}/{kinds['CutMix'].alpha:g}", _targets(one.num_classes, 0.0)
    if name in ("timm.Mixup", "timm.FastCollateMixup"):
        text = f"timm={mix.mixup_alpha:g}/{mix.cutmix_alpha:g},mode={mix.mode},probability={mix.mix_prob:g},switch={mix.switch_prob:g}"
        if mix.cutmix_minmax is not None:
            low, high = mix.cutmix_minmax
            text += f",minmax={low:g}/{high:g}"
        if not mix.correct_lam:
            text += ",uncorrected"
        return text, _targets(mix.num_classes, mix.label_smoothing)
    raise UnsupportedError(
        f"mix: {shown(mix)} cannot be converted: give torchvision's MixUp, CutMix or an even RandomChoice of both, timm's Mixup, "
        'or a text such as "torchvision=0.2/1"'
    )


def _targets(classes: int | None, smoothing: float) -> str | None:
    return None if classes is None else f"soft={classes}/{smoothing:g}"
