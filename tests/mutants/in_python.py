"""Changes of Python code: a boundary, a condition, a term, a statement, a number, an order of arguments.

Each is one that somebody makes by mistake, and that type checkers do not see. Nothing is changed in an f-string (the
syntax tree has no places there before Python 3.12), in an annotation, a default, a decorator, a log call or a message
of an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.mutants.change import Change, Source

__all__ = ["changes_of_python"]

_BOUNDARIES: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
}
_OPPOSITES: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_WORDS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
_FILTERS = frozenset({"where", "and_", "or_"})
_LOGS = frozenset({"debug", "info", "warning", "error", "exception", "log", "warn"})
_SKIPPED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)


def changes_of_python(source: Source, node: ast.AST) -> Iterator[Change]:
    """Yield the changes of one node, without those of what is in it."""
    if isinstance(node, ast.Compare):
        yield from _of_compare(source, node)
    elif isinstance(node, ast.BoolOp):
        yield from _without_one(source, node, "term")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _put(source, node, "opposite", node.operand)
    elif isinstance(node, ast.If | ast.IfExp):
        yield from _of_condition(source, node.test)
    elif isinstance(node, ast.comprehension):
        yield from (_put(source, test, "condition", ast.Constant(True)) for test in node.ifs if not _binds(test))
    elif isinstance(node, ast.BinOp):
        yield from _of_sum(source, node)
    elif isinstance(node, ast.Call):
        yield from _of_call(source, node)
    elif isinstance(node, ast.Subscript):
        yield from _of_subscript(source, node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(source, node)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a node that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args" if isinstance(node, _DEFINITIONS) else ""):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, _SKIPPED) and not _logs(child):
                yield child


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _put(source: Source, old: ast.expr, kind: str, new: ast.expr) -> Change:
    """Replace an expression by another one, in parentheses where it is more than one word."""
    text = ast.unparse(new)
    simple = isinstance(new, ast.Constant | ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return Change(kind, *source.span(old), text if simple else f"({text})")


def _of_compare(source: Source, node: ast.Compare) -> Iterator[Change]:
    if len(node.ops) > 1 or _binds(node):
        return
    kind, other = "boundary", _BOUNDARIES.get(type(node.ops[0]))
    if other is None:
        kind, other = "opposite", _OPPOSITES[type(node.ops[0])]
    elif "monotonic" in source.of(node):
        return  # no clock shows just the instant of a boundary
    yield _put(source, node, kind, ast.Compare(node.left, [other], node.comparators))
    (right,) = node.comparators
    if kind == "boundary" and isinstance(right, ast.Constant) and isinstance(right.value, int):
        yield _put(source, right, "number", ast.Constant(right.value + 1))
    if isinstance(right, ast.Tuple | ast.Set) and len(right.elts) > 1:
        yield from _without_one(source, right, "term")


def _without_one(source: Source, node: ast.BoolOp | ast.Tuple | ast.Set, kind: str) -> Iterator[Change]:
    values = node.values if isinstance(node, ast.BoolOp) else node.elts
    for n, value in enumerate(values):
        rest = values[:n] + values[n + 1 :]
        if _binds(value):
            continue
        if isinstance(node, ast.BoolOp):
            yield _put(source, node, kind, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        else:
            yield _put(source, node, kind, ast.Set(rest) if isinstance(node, ast.Set) else ast.Tuple(rest, ast.Load()))


def _of_condition(source: Source, test: ast.expr) -> Iterator[Change]:
    """Take one branch always: a check that is missing."""
    if not _binds(test) and "TYPE_CHECKING" not in source.of(test):
        yield _put(source, test, "condition", ast.Constant(False))
        yield _put(source, test, "condition", ast.Constant(True))


def _of_sum(source: Source, node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant) and node.right.value == 1:
        yield _put(source, node, "number", node.left)
    swapped: ast.operator | None = {ast.BitAnd: ast.BitOr(), ast.BitOr: ast.BitAnd()}.get(type(node.op))
    if swapped is not None and not _is_type(node):
        yield _put(source, node, "term", node.left)
        yield _put(source, node, "term", node.right)


def _is_type(node: ast.BinOp) -> bool:
    """Tell whether this is a union of types."""
    return any(isinstance(n, ast.Constant) and n.value is None for n in ast.walk(node)) or all(
        (isinstance(n, ast.Name) and n.id[:1].isupper()) or n.__class__ is ast.Attribute
        for n in (node.left, node.right)
    )


def _of_call(source: Source, node: ast.Call) -> Iterator[Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _WORDS:
        keywords = [k for k in node.keywords if name != "sorted"]
        yield _put(source, node, "word", ast.Call(ast.Name(_WORDS[name]), node.args, keywords))
    if isinstance(node.func, ast.Attribute | ast.Name) and source.of(node.func).rpartition(".")[2] in _FILTERS:
        for n in range(len(node.args) if len(node.args) > 1 else 0):
            yield _put(source, node, "term", ast.Call(node.func, node.args[:n] + node.args[n + 1 :], node.keywords))
    if len(node.args) > 1 and all(isinstance(a, ast.Name | ast.Attribute) for a in node.args[:2]):
        first, second, *rest = node.args
        if name not in ("isinstance", "getattr", "issubclass", "cast", "zip", "min", "max"):
            yield _put(source, node, "swapped", ast.Call(node.func, [second, first, *rest], node.keywords))
    for keyword in node.keywords:
        said = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if isinstance(said, bool) and keyword.arg not in ("strict", "daemon", "slots", "frozen"):
            yield _put(source, keyword.value, "flag", ast.Constant(not said))


def _of_subscript(source: Source, node: ast.Subscript) -> Iterator[Change]:
    part = node.slice
    if isinstance(part, ast.Slice) and isinstance(node.ctx, ast.Load):
        yield _put(source, node, "number", node.value)


def _of_statement(source: Source, node: ast.stmt) -> Iterator[Change]:
    """Leave out what a statement does, where nothing needs its value."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    placed = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if node.end_lineno == node.lineno and (called or placed or isinstance(node, ast.AugAssign | ast.Delete)):
        yield Change("statement", *source.span(node), "pass")


def raised(source: Source, node: ast.AST) -> Iterator[Change]:
    """Yield the changes of the statements that raise: they are left out."""
    bodies: Iterable[list[ast.stmt]] = [
        value for _, value in ast.iter_fields(node) if isinstance(value, list) and value and _all_statements(value)
    ]
    for body in bodies:
        yield from (Change("raise", *source.span(one), "pass") for one in body if isinstance(one, ast.Raise))


def _all_statements(values: list[ast.stmt]) -> bool:
    return all(isinstance(one, ast.stmt) for one in values)


def _binds(node: ast.AST) -> bool:
    """Tell whether an expression gives a value a name, which the rest needs."""
    return any(isinstance(one, ast.NamedExpr) for one in ast.walk(node))


def _logs(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS
