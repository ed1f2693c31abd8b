"""Plain data and digests: a field that joins later changes no digest until it is used."""

from dataclasses import dataclass

from forerun.base.config import added, canonical_json, decode, digest_of, plain, with_overrides


@dataclass(frozen=True, kw_only=True)
class Before:
    """As files were written at first."""

    name: str
    parts: tuple["Before", ...] = ()


@dataclass(frozen=True, kw_only=True)
class After:
    """The same with a field more."""

    name: str
    parts: tuple["After", ...] = ()
    limit: float | None = added(None)


def test_a_field_that_joins_later_keeps_every_digest_until_it_is_used():
    old = Before(name="a", parts=(Before(name="b"),))
    new = decode(plain(old), After, where="file")
    assert new == After(name="a", parts=(After(name="b"),))
    assert canonical_json(new) == canonical_json(old)
    used = After(name="a", parts=(After(name="b", limit=0.5),))
    assert digest_of(used) != digest_of(new)
    assert decode(plain(used), After, where="file") == used


def test_a_field_that_joined_later_can_be_set_from_the_command_line():
    assert with_overrides(After(name="a"), ["limit=2.5"]).limit == 2.5
