# SPDX-License-Identifier: Apache-2.0
"""Reading what stands in an action: declarations, commands and operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipecd_model.templates.expressions import (
    Chain,
    Expression,
    FieldAccess,
    FunctionCall,
    Literal,
    Nil,
    NumberLiteral,
    Pipeline,
    Surplus,
    Variable,
)
from pipecd_model.templates.faults import TemplateFaultError, unknown_function
from pipecd_model.templates.functions.signature import Function
from pipecd_model.templates.lexer import Word
from pipecd_model.templates.limits import RenderLimits
from pipecd_model.templates.literals import (
    BadLiteralError,
    Number,
    parse_character,
    parse_number,
    parse_text,
)
from pipecd_model.templates.words import Words


class VariableScope:
    """The variables of one template that can be seen at one place, each with its number."""

    __slots__ = ("_names", "size")

    def __init__(self) -> None:
        self._names = [("$", 0)]
        self.size = 1

    def mark(self) -> int:
        """Return what `drop` needs to forget all variables that come after."""
        return len(self._names)

    def drop(self, mark: int) -> None:
        del self._names[mark:]

    def declare(self, name: str) -> int:
        self._names.append((name, self.size))
        self.size += 1
        return self.size - 1

    def find(self, word: Word) -> int:
        for name, slot in reversed(self._names):
            if name == word.text:
                return slot
        raise TemplateFaultError(f"undefined variable {word.text[:100]!r}", position=word.position)


_CONSTANTS: Final[dict[str, object]] = {"true": True, "false": False}


class PipelineParser:
    """Reads pipelines of one template."""

    def __init__(
        self, words: Words, limits: RenderLimits, functions: Mapping[str, Function]
    ) -> None:
        self._words = words
        self._limits = limits
        self._functions = functions
        self._depth = 0
        self.scope = VariableScope()

    def new_scope(self) -> VariableScope:
        """Begin with no variables; returns the scope there was."""
        before, self.scope = self.scope, VariableScope()
        return before

    def parse_action(self, context: str) -> Pipeline:
        """Read up to the end of the action."""
        return self._pipeline(context, "close")

    def _pipeline(self, context: str, closing: str) -> Pipeline:
        self._words.skip_space()
        position = self._words.peek().position
        variables, is_declaration = self._variables(context)
        commands = self._commands(context, closing)
        if is_declaration:
            slots = tuple(self.scope.declare(each.text) for each in variables)
        else:
            slots = tuple(self.scope.find(each) for each in variables)
        return Pipeline(position, commands, slots)

    def _variables(self, context: str) -> tuple[list[Word], bool]:
        """Read `$x :=`, `$x =` or, for range, `$x, $y :=`, if the pipeline starts with one."""
        variables: list[Word] = []
        while self._words.peek().kind == "variable":
            variable = self._words.next()
            space = self._words.next() if self._words.peek().kind == "space" else None
            after = self._words.peek()
            if after.kind in {"declare", "assign"}:
                self._words.next()
                self._words.skip_space()
                return [*variables, variable], after.kind == "declare"
            if after.kind == "comma" and context == "range" and not variables:
                self._words.next()
                self._words.skip_space()
                variables.append(variable)
                continue
            if after.kind == "comma" or variables:
                raise TemplateFaultError(
                    f"too many variables for {context}", position=variable.position
                )
            if space is not None:
                self._words.put_back(space)
            self._words.put_back(variable)
            break
        if variables:
            raise TemplateFaultError(
                "range has two variables, both before :=", position=variables[0].position
            )
        return [], True

    def _commands(self, context: str, closing: str) -> tuple[Expression, ...]:
        commands: list[Expression] = []
        while True:
            self._words.skip_space()
            word = self._words.peek()
            if word.kind == closing:
                self._words.next()
                if not commands:
                    raise _empty(context, word)
                return tuple(commands)
            command = self._command(word)
            if commands and isinstance(command, Literal | NumberLiteral | Nil):
                raise TemplateFaultError(
                    "a value cannot be given to what is no function", position=word.position
                )
            if commands and isinstance(command, FieldAccess) and not command.names:
                raise TemplateFaultError(
                    "a value cannot be given to the dot", position=word.position
                )
            commands.append(command)

    def _command(self, first: Word) -> Expression:
        """Read operands up to the next pipe or the end."""
        operands: list[Expression] = []
        while True:
            self._words.skip_space()
            operand = self._operand()
            if operand is not None:
                operands.append(operand)
            word = self._words.peek()
            if word.kind == "space":
                continue
            if word.kind == "pipe":
                self._words.next()
            elif word.kind not in {"close", "shut"}:
                raise _fault_of_word(word)
            break
        if not operands:
            raise _fault_of_word(word)
        head, *arguments = operands
        if isinstance(head, FunctionCall):
            return FunctionCall(head.position, head.name, head.function, tuple(arguments))
        return Surplus(first.position, head) if arguments else head

    def _operand(self) -> Expression | None:
        """Read a term and the keys after it."""
        word = self._words.peek()
        term = self._term()
        if term is None or self._words.peek().kind != "field":
            return term
        names: list[str] = []
        while self._words.peek().kind == "field":
            names.append(self._words.next().text[1:])
        if isinstance(term, FieldAccess) and term.names:
            return FieldAccess(term.position, (*term.names, *names))
        if isinstance(term, Variable):
            return Variable(term.position, term.name, term.slot, tuple(names))
        if isinstance(term, Pipeline | FunctionCall | Chain):
            return Chain(term.position, term, tuple(names))
        raise TemplateFaultError(f"{word.text[:100]} has no keys", position=word.position)

    def _term(self) -> Expression | None:
        word = self._words.peek()
        if word.kind not in _TERMS:
            return None
        self._words.next()
        at = word.position
        match word.kind:
            case "field":
                return FieldAccess(at, (word.text[1:],))
            case "dot":
                return FieldAccess(at, ())
            case "variable":
                return Variable(at, word.text, self.scope.find(word), ())
            case "name":
                return self._name(word)
            case "open":
                return self._parentheses(word)
            case _:
                return _literal(word)

    def _name(self, word: Word) -> Expression:
        if word.text in _CONSTANTS:
            return Literal(word.position, _CONSTANTS[word.text])
        if word.text == "nil":
            return Nil(word.position)
        function = self._functions.get(word.text)
        if function is None:
            if word.text in _RESERVED:
                raise _fault_of_word(word)
            raise unknown_function(word.text, word.position)
        return FunctionCall(word.position, word.text, function, ())

    def _parentheses(self, word: Word) -> Expression:
        self._depth += 1
        if self._depth > self._limits.nesting:
            raise TemplateFaultError("the template is nested too deeply", position=word.position)
        inside = self._pipeline("parentheses", "shut")
        self._depth -= 1
        return inside


_TERMS: Final = frozenset(
    {"field", "dot", "variable", "name", "open", "text", "character", "number"}
)
_RESERVED: Final = frozenset(
    {"if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"}
)


def _literal(word: Word) -> Expression:
    try:
        if word.kind == "text":
            return Literal(word.position, parse_text(word.text))
        if word.kind == "character":
            code = parse_character(word.text)
            return NumberLiteral(word.position, Number(code, code))
        return NumberLiteral(word.position, parse_number(word.text))
    except BadLiteralError as error:
        raise TemplateFaultError(str(error), position=word.position) from None


def _empty(context: str, word: Word) -> TemplateFaultError:
    if context == "command":
        return TemplateFaultError(
            "the action is empty", hint='write {{ "{{" }} for two braces', position=word.position
        )
    return TemplateFaultError(f"{context} needs a value", position=word.position)


def _fault_of_word(word: Word) -> TemplateFaultError:
    if word.kind == "close":
        return TemplateFaultError("a value is missing before the end", position=word.position)
    return TemplateFaultError(f"{word.text[:100]!r} cannot stand here", position=word.position)
