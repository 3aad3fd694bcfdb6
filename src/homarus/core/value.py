"""Dataclasses that cost little to define.

`@dataclass` means here what it means in the standard library, which still collects the fields:
`replace`, `fields`, `match` and type checkers see no difference. The library also writes and
compiles up to eight methods for each class as it is defined, and with some hundred classes that
was a quarter of the work of a start. Here classes share theirs, and an `__init__` is compiled
when its class makes the first instance.
"""

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from reprlib import recursive_repr
from typing import Any, Literal, TypeVar, dataclass_transform

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
    """As in the standard library. Each class says that it has slots, for those who read it."""
    assert slots  # noqa: S101 - there is no other kind

    def define(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the library works out a signature
        known: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        body = _body(known, weakref_slot=weakref_slot)
        for name, method in _methods(known, frozen=frozen, eq=eq).items():
            body.setdefault(name, method)
        if eq and frozen and body["__hash__"] is None:  # the class has an `__eq__` of its own
            body["__hash__"] = _hash

        def init_once(self: Any, *args: Any, **kwargs: Any) -> None:
            made.__init__ = _init(made)
            made.__init__(self, *args, **kwargs)

        if init:
            body["__init__"] = init_once
        made: Any = type(known)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        return made  # type: ignore[no-any-return]  # the same class again, with slots

    return define


def _body(cls: Any, *, weakref_slot: bool) -> dict[str, Any]:
    """What a class is made of, with a slot for each field that no base has one for."""
    names = [each.name for each in fields(cls)]
    held = {slot for base in cls.__mro__[1:-1] for slot in getattr(base, "__slots__", ())}
    left_out = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in vars(cls).items() if name not in left_out}
    own = [name for name in names if name not in held]
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


def _init(cls: Any) -> Callable[..., None]:
    """Compile an `__init__`."""
    frozen = cls.__setattr__ is _refuse_to_set
    known: dict[str, Any] = {"MISSING": MISSING}
    params, lines = ["self"], list[str]()
    for each in fields(cls):
        name, value = each.name, _value(each, known)
        if each.init:
            params.append(_param(each))
        if value and frozen:  # a slot's own setter does not ask
            known[f"set_{name}"] = getattr(cls, name).__set__
            lines.append(f"set_{name}(self, {value})")
        elif value:
            lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = "\n ".join([f"def __init__({', '.join(params)}):", *(lines or ["pass"])])
    made: dict[str, Any] = {}
    exec(text, known, made)  # noqa: S102 - made of the names of fields, as the library does
    init: Callable[..., None] = made["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


def _param(each: Field[Any]) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=MISSING"
    return each.name if each.default is MISSING else f"{each.name}=default_{each.name}"


def _value(each: Field[Any], known: dict[str, Any]) -> str:
    """What a field is set to, as text; nothing when it is left to others."""
    name = each.name
    if each.default_factory is not MISSING:
        known[f"make_{name}"] = each.default_factory
        return f"make_{name}() if {name} is MISSING else {name}" if each.init else f"make_{name}()"
    if each.default is not MISSING:
        known[f"default_{name}"] = each.default
        return name if each.init else f"default_{name}"
    return name if each.init else ""


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (each.name for each in fields(self) if each.repr)
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({told})"


def _equals(self: Any, other: Any) -> Any:
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
