"""Our dataclass behaves like the standard library's."""

import copy
import dataclasses
import inspect
import pickle
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.fast_dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Counter:
    """Something that changes."""

    name: str
    count: int = 0
    seen: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Named(Point):
    """A place with a name and a secret."""

    name: str = ""
    secret: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Nothing:
    """No fields."""


def kinds(make: Callable[..., Any]) -> tuple[Any, Any]:
    """The same two classes by one decorator."""

    @make(frozen=True, slots=True)
    class Frozen:
        """Values."""

        a: Any
        b: Any = 1
        c: Any = field(default_factory=list, compare=False)
        d: Any = field(default=2, repr=False)

    @make(slots=True)
    class Open:
        """Values."""

        a: Any
        b: Any = field(default_factory=dict)
        c: Any = None

    return Frozen, Open


ours, theirs = kinds(dataclass), kinds(dataclasses.dataclass)
values = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.tuples(st.integers()))
givens = st.dictionaries(st.sampled_from("bcd"), values)


@given(values, givens, values, givens)
def test_dataclass_repr_and_equality_match_the_library(
    a: object, more: dict[str, object], b: object, other: dict[str, object]
) -> None:
    for mine, library in zip(ours, theirs, strict=True):
        if mine is ours[1]:
            more.pop("d", None)
            other.pop("d", None)
        one, two = mine(a, **more), mine(b, **other)
        first, second = library(a, **more), library(b, **other)
        assert repr(one) == repr(first)
        assert (one == two) == (first == second)
        assert one == dataclasses.replace(one) == replace(one) and one != first
        assert replace(one, **other) == dataclasses.replace(one, **other)
        assert dataclasses.asdict(one) == dataclasses.asdict(first)
        assert mine.__match_args__ == library.__match_args__
        assert mine.__slots__ == library.__slots__
    one, two = ours[0](a, **more), ours[0](b, **other)
    if one == two:
        assert hash(one) == hash(two)


def test_dataclass_init_accepts_positions_and_keywords() -> None:
    assert Point(1, y=2) == Point(x=1, y=2, tags=(), more={})
    assert Point(1).more is not Point(1).more
    make: Any = Point
    for args, kwargs in (((), {}), ((1, 2, (), {}, 5), {}), ((1,), {"z": 1}), ((1,), {"x": 1})):
        with pytest.raises(TypeError, match=r"Point\.__init__"):
            make(*args, **kwargs)


def test_dataclass_frozen_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2  # type: ignore[misc]  # that is the point
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.z = 2  # type: ignore[attr-defined]  # nor can it grow
    assert point.x == 1


def test_dataclass_mutable_has_no_hash_and_no_dict() -> None:
    counter = Counter("a")
    counter.count += 1
    assert counter == Counter("a", 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]  # that is the point


def test_dataclass_subclass_has_fields_of_both() -> None:
    named = Named(1, name="home", secret="s3cret")
    assert named == Named(1, 0, (), {}, "home", "another")
    assert named != Point(1)
    assert "s3cret" not in repr(named) and "name='home'" in repr(named)
    assert not hasattr(named, "__dict__")
    for copied in (dataclasses.replace(named, x=2), replace(named, x=2)):
        assert (copied.x, copied.name, copied.secret, named.x) == (2, "home", "s3cret", 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        replace(named, z=2)  # type: ignore[call-arg]  # that is the point


def test_dataclass_plain_subclass_may_define_init() -> None:
    class Origin(Point):
        __slots__ = ()

        def __init__(self) -> None:
            super().__init__(0)

    assert Origin().x == 0
    assert Origin() != Point(0)


def test_dataclass_supports_match_copy_and_pickle() -> None:
    match Point(1, 2):
        case Point(1, y):
            assert y == 2
        case _:
            pytest.fail("it did not match")
    for value in (Point(1, more={"a": 1}), Counter("a", 2, [3]), Named(1, name="n"), Nothing()):
        assert copy.copy(value) == value
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value


def test_dataclass_without_fields_equals_another_instance() -> None:
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()) == "Nothing()"


def test_dataclass_own_methods_are_kept() -> None:
    @dataclass(frozen=True, slots=True)
    class Loose:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Loose)

        def __repr__(self) -> str:
            return "loose"

        def __hash__(self) -> int:
            return 7

    @dataclass(slots=True, eq=False)
    class Alone:
        name: str

    assert Loose("a") == Loose("b") and repr(Loose("a")) == "loose" and hash(Loose("a")) == 7
    assert Alone("a") != Alone("a") and len({Alone("a"), Alone("a")}) == 2


def test_dataclass_recursive_value_has_repr() -> None:
    counter = Counter("a")
    counter.seen.append(counter)  # type: ignore[arg-type]  # that is the point
    assert repr(counter) == "Counter(name='a', count=0, seen=[...])"


def test_dataclass_weakref_needs_weakref_slot() -> None:
    @dataclass(frozen=True, slots=True, weakref_slot=True)
    class Held:
        name: str

    held = Held("a")
    assert weakref.ref(held)() is held
    with pytest.raises(TypeError):
        weakref.ref(Point(1))


def test_dataclass_unsupported_feature_raises_type_error() -> None:
    def later() -> None:
        @dataclass(slots=True)
        class Made:
            name: str = field(default="", init=False)

    def after() -> None:
        @dataclass(slots=True)
        class Checked:
            name: str

            def __post_init__(self) -> None:
                pass

    def by_name() -> None:
        @dataclass(slots=True)
        class Named:
            name: str = field(kw_only=True)

    for define in (later, after, by_name):
        with pytest.raises(TypeError, match="standard library"):
            define()


def test_dataclass_default_before_required_field_raises() -> None:
    wrong = type("Wrong", (), {"__annotations__": {"a": int, "b": int}, "a": 1})
    with pytest.raises(TypeError, match="without a default"):
        dataclass(frozen=True, slots=True)(wrong)


def test_dataclass_init_signature_names_the_fields() -> None:
    told = "(x, y=0, tags=(), more=<dataclasses._MISSING_TYPE object"
    assert str(inspect.signature(Point)).startswith(told)
    assert Point.__init__.__qualname__ == "Point.__init__"
    assert Point.__init__.__module__ == __name__
