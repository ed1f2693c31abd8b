"""What people call an experiment, and the folder they mean: `001-top-k` by its name, its number or its slug."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.base.errors import RegistryError


def named(experiment: str, names: Sequence[str], *, where: str) -> str:
    """The one name that is meant.

    Args:
        experiment: `001-top-k`, `001`, `1` or `top-k`.
        names: of the experiments there are.
        where: what there are experiments of, for the error: "in experiments", "is registered".
    Raises: RegistryError when none or several are meant.
    """
    if experiment in names:
        return experiment
    found = sorted({name for name in names if _means(experiment, name)})
    if len(found) > 1:
        raise RegistryError(f"{experiment!r} may be {' or '.join(found[:4])}", hint="give the whole name")
    if not found:
        raise RegistryError(f"no experiment {experiment!r} {where}", hint=f"experiments: {', '.join(sorted(names)) or 'none yet'}")
    return found[0]


def _means(text: str, name: str) -> bool:
    number, dash, slug = name.partition("-")
    if not (dash and number.isdecimal()):
        return False
    return text == slug or (text.isdecimal() and int(text) == int(number))
