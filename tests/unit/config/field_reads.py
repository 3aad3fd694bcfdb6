"""Find, in the source, which fields of the config's sections are read.

A small type inference over the syntax trees: the type of an expression is the set of classes of
this program that its annotations name, with containers, options and callables taken for what they
contain. Class names are unique in the source, so that a name is enough. It follows parameters,
assignments, loops, attributes and return values; what it cannot follow it does not count as read.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

Types = frozenset[str]
NONE: Types = frozenset()
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Annotated = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# Calls whose result is, or contains, what they are given.
_PASSING = frozenset(
    {"next", "iter", "tuple", "list", "dict", "set", "sorted", "reversed", "enumerate", "zip",
     "filter", "map", "replace", "partial", "lru_cache", "cast", "to_thread", "getattr"}
)  # fmt: skip


class SourceIndex:
    """The classes and functions of the source, and the fields of classes that are read."""

    def __init__(self, files: Iterable[Path]) -> None:
        modules = [ast.parse(file.read_text("utf-8")) for file in files]
        self.bases: dict[str, list[str]] = {}
        self.attributes: dict[str, dict[str, Types]] = defaultdict(dict)
        self.functions: dict[str, Types] = defaultdict(lambda: NONE)
        self.constants: dict[str, Types] = defaultdict(lambda: NONE)
        self.reads: set[tuple[str, str]] = set()
        self.strings: set[str] = set()
        self._aliases: dict[str, ast.expr] = {}
        self._annotate([found for module in modules for found in self._declare(module)])
        for _ in range(2):  # attributes of `self` and constants are known after the first pass
            self.reads.clear()
            for module in modules:
                scope = _Scope(self, "", {})
                scope.run(module.body)
                for name, types in scope.names.items():
                    self.constants[name] |= types

    def _declare(self, module: ast.Module) -> Iterator[Annotated]:
        """Record the classes, aliases and texts of a module; yield what has annotations."""
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                self.bases[node.name] = [each for base in node.bases for each in _names(base)]
                yield node
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.strings.add(node.value)
        for each in module.body:
            match each:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._aliases.setdefault(name, value)

    def _annotate(self, declared: list[Annotated]) -> None:
        for node in declared:
            if not isinstance(node, ast.ClassDef):
                self.functions[node.name] |= self.of(node.returns)
                continue
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    self.attributes[node.name][part.target.id] = self.of(part.annotation)
                elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.attributes[node.name][part.name] = self.of(part.returns)

    def of(self, annotation: ast.expr | None) -> Types:
        """Return the classes that an annotation names."""
        return frozenset(self._expand(annotation, 3)) if annotation else NONE

    def _expand(self, annotation: ast.expr, depth: int) -> Iterator[str]:
        for name in _names(annotation):
            if name in self.bases:
                yield name
            elif name in self._aliases and depth:
                yield from self._expand(self._aliases[name], depth - 1)

    def owner(self, name: str, attribute: str) -> str:
        """Return the class that defines an attribute of a class; "" if none does."""
        if attribute in self.attributes[name]:
            return name
        found = (self.owner(base, attribute) for base in self.bases.get(name, ()) if base != name)
        return next(filter(None, found), "")


class _Scope:
    """The names of one function; nested functions see them too."""

    def __init__(self, index: SourceIndex, owner: str, names: dict[str, Types]) -> None:
        self.index, self.owner, self.names = index, owner, dict(names)

    def run(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.ClassDef():
                _Scope(self.index, node.name, self.names).run(node.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for each in (*node.decorator_list, *node.args.defaults):
                    self.type(each)
                self._function(node, node.body)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.bind(target, self.type(value), value)
            case ast.AnnAssign(target=target, annotation=annotation):
                self.bind(target, self.index.of(annotation) | self._optional(node.value))
            case ast.AugAssign(target=target, value=value):
                self.bind(target, self.type(target) | self.type(value))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                self.bind(target, self.type(value))
                self._children(node, skip=(target, value))
            case ast.withitem(context_expr=value, optional_vars=target):
                found = self.type(value)
                if target is not None:
                    self.bind(target, found)
            case ast.expr():
                self.type(node)
            case _:
                self._children(node)

    def _children(self, node: ast.AST, skip: tuple[ast.AST, ...] = ()) -> None:
        for child in ast.iter_child_nodes(node):
            if child not in skip:
                self.visit(child)

    def _optional(self, node: ast.expr | None) -> Types:
        return self.type(node) if node else NONE

    def _function(self, node: Function, body: list[ast.stmt]) -> None:
        inner = _Scope(self.index, self.owner, self.names)
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        for position, argument in enumerate(arguments):
            is_self = position == 0 and argument.arg in {"self", "cls"} and self.owner
            own = frozenset({self.owner}) if is_self else self.index.of(argument.annotation)
            inner.names[argument.arg] = own
        inner.run(body)

    def bind(self, target: ast.expr, types: Types, value: ast.expr | None = None) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = self.names.get(name, NONE) | types
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
                for at, each in enumerate(targets):
                    exact = len(parts) == len(targets)
                    self.bind(each, self.type(parts[at]) if exact else types)
            case ast.Starred(value=each):
                self.bind(each, types)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner:
                known = self.index.attributes[self.owner]
                known[name] = known.get(name, NONE) | types

    def type(self, node: ast.expr) -> Types:
        match node:
            case ast.Name(id=name):
                own = frozenset({name}) if name in self.index.bases else NONE
                return self.names.get(name) or self.index.constants.get(name, own)
            case ast.Attribute(value=value, attr=name):
                return self._attribute(self.type(value), name)
            case ast.Call():
                return self._call(node)
            case ast.Lambda(body=body):
                self._function(node, [ast.Expr(body)])
                return self.type(body)
            case ast.NamedExpr(target=target, value=value):
                found = self.type(value)
                self.bind(target, found)
                return found
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for loop in node.generators:
                    self.bind(loop.target, self.type(loop.iter))
                    for test in loop.ifs:
                        self.type(test)
                values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return NONE.union(*map(self.type, values))
            case ast.Compare():
                for each in (node.left, *node.comparators):
                    self.type(each)
                return NONE
            case _:
                inner = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
                return NONE.union(*map(self.type, inner))

    def _attribute(self, types: Types, name: str) -> Types:
        found, is_known = NONE, False
        for each in types:
            if owner := self.index.owner(each, name):
                is_known = True
                self.index.reads.add((owner, name))
                found |= self.index.attributes[owner][name]
        return found if is_known else types  # a method of a container

    def _call(self, node: ast.Call) -> Types:
        given = NONE.union(*map(self.type, [*node.args, *(each.value for each in node.keywords)]))
        called = self.type(node.func)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for argument in node.args[1:2] if name == "getattr" else ():
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                called |= self._attribute(self.type(node.args[0]), argument.value)
        for each in called:
            if owner := self.index.owner(each, "__call__"):
                called |= self.index.attributes[owner]["__call__"]
        known = self.index.functions.get(name, NONE) if name not in self.names else NONE
        return called | known | (given if name in _PASSING else NONE)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an annotation, also inside text."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                yield from _names(ast.parse(each.value, mode="eval"))
            except SyntaxError:
                continue
