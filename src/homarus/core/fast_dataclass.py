"""A `@dataclass` that is fast to define.

It behaves like the standard one, which still collects the fields: `replace`, `fields`, `match`
and type checkers see no difference. The standard library generates and compiles up to eight
methods for each class; for some hundred classes that was a quarter of the start-up time. Here
the classes share their methods. Only `__init__` depends on the fields: one is compiled for each
number of fields, and copied to a class with its field names. Features that no class here needs
are refused.
"""

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from functools import cache
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *,
    slots: Literal[True],
    frozen: bool = False,
    init: bool = True,
    eq: bool = True,
    weakref_slot: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Define a dataclass as the standard library does; `slots=True` is required for clarity."""
    assert slots  # noqa: S101 - nothing else is supported

    def define(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the library computes a signature
        base: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        body = _body(base, weakref_slot=weakref_slot)
        for name, method in _methods(base, frozen=frozen, eq=eq).items():
            body.setdefault(name, method)
        if eq and frozen and body["__hash__"] is None:  # the class has an `__eq__` of its own
            body["__hash__"] = _hash
        setters: dict[str, Any] = {}
        if init:
            body["__init__"] = _init(base, setters, frozen=frozen)
        result: type[T] = type(base)(cls.__name__, cls.__bases__, body)
        result.__qualname__ = cls.__qualname__
        for number, each in enumerate(fields(base)):
            setters[f"set_{number}"] = _setter(result, each)
        return result

    return define


if TYPE_CHECKING:  # type checkers know the fields that the standard one accepts
    from dataclasses import replace as replace  # noqa: PLC0414 - this exports it
else:

    def replace(obj, /, **changes):
        """Return a copy with changed fields, as the standard one, in half of its time."""
        cls = obj.__class__
        for name in cls.__match_args__:  # all fields, in a class of this module
            if name not in changes:
                changes[name] = getattr(obj, name)
        return cls(**changes)


def _body(cls: Any, *, weakref_slot: bool) -> dict[str, Any]:
    """Return the namespace of a class, with a slot for each field that has none in a base."""
    names = [each.name for each in fields(cls)]
    base_slots = {slot for base in cls.__mro__[1:-1] for slot in getattr(base, "__slots__", ())}
    omitted = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(cls).items() if name not in omitted}
    own = [name for name in names if name not in base_slots]
    body["__slots__"] = (*own, "__weakref__") if weakref_slot else tuple(own)
    return body


def _methods(cls: Any, *, frozen: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__repr__": _repr}
    if eq:
        names = [each.name for each in fields(cls) if each.compare]
        methods["__compared__"] = operator.attrgetter(*names or ["__class__"])
        methods |= {"__eq__": _equals, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    return methods


def _init(cls: Any, setters: dict[str, Any], *, frozen: bool) -> FunctionType:
    """Return the `__init__` of a class, whose globals are `setters`."""
    all_fields = fields(cls)
    if hasattr(cls, "__post_init__") or any(not each.init or each.kw_only for each in all_fields):
        raise TypeError(f"{cls.__qualname__} needs the dataclass of the standard library")
    names = tuple([each.name for each in all_fields])
    # Setting an attribute is faster where the class is not frozen and has no default factory.
    plain = not frozen and all(each.default_factory is MISSING for each in all_fields)
    code = _template(len(names), plain=plain)
    code = code.replace(
        co_varnames=("self", *names),
        co_names=names if plain else code.co_names,
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    defaults = [each.default if each.default_factory is MISSING else MISSING for each in all_fields]
    first = next((n for n, each in enumerate(all_fields) if _has_default(each)), len(all_fields))
    if any(not _has_default(each) for each in all_fields[first:]):
        raise TypeError(f"{cls.__qualname__} has a field without a default after one with")
    result = FunctionType(code, setters, "__init__", tuple(defaults[first:]))
    result.__module__ = cls.__module__
    return result


def _has_default(each: Field[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


@cache
def _template(count: int, *, plain: bool) -> CodeType:
    """Compile an `__init__` for this number of fields."""
    params = [f"value_{number}" for number in range(count)]
    set_it = "self.name_{0} = value_{0}" if plain else "set_{0}(self, value_{0})"
    lines = [set_it.format(number) for number in range(count)] or ["pass"]
    result: dict[str, Any] = {}
    text = "\n ".join([f"def __init__({', '.join(['self', *params])}):", *lines])
    exec(text, result)  # noqa: S102 - the text contains only numbers
    code: CodeType = result["__init__"].__code__
    return code


def _setter(cls: Any, each: Field[Any]) -> Callable[[Any, Any], None]:
    """Return a setter for a field, which also works in a frozen class."""
    set_it: Callable[[Any, Any], None] = getattr(cls, each.name).__set__
    make: Any = each.default_factory
    if make is MISSING:
        return set_it

    def set_or_make(self: Any, value: Any) -> None:
        set_it(self, make() if value is MISSING else value)

    return set_or_make


@recursive_repr()
def _repr(self: Any) -> str:
    names = (each.name for each in fields(self) if each.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({values})"


def _equals(self: Any, other: Any) -> Any:
    if other is self:
        return True
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = self.__compared__
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
