# SPDX-License-Identifier: Apache-2.0
"""Reading a template: from words to what it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from pipecd_model.templates.blocks import (
    Action,
    Block,
    Body,
    Branch,
    Conditional,
    Definition,
    Jump,
    Leave,
    Plain,
    Range,
    TemplateCall,
)
from pipecd_model.templates.faults import TemplateFaultError
from pipecd_model.templates.functions.signature import Function
from pipecd_model.templates.lexer import Word, read_words
from pipecd_model.templates.limits import RenderLimits
from pipecd_model.templates.literals import BadLiteralError, parse_text
from pipecd_model.templates.pipelines import PipelineParser
from pipecd_model.templates.words import Words

_WORDS: Final = frozenset(
    {"if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"}
)


def parse(text: str, limits: RenderLimits, functions: Mapping[str, Function]) -> Definition:
    """Read a template; raises TemplateFaultError."""
    return _Parser(read_words(text, limits), limits, functions).parse()


class _Parser:
    """One template that is being read."""

    def __init__(
        self, words: Iterator[Word], limits: RenderLimits, functions: Mapping[str, Function]
    ) -> None:
        self._words = Words(words)
        self._limits = limits
        self._functions = functions
        self._definitions: dict[str, Definition] = {}
        self._pipelines = PipelineParser(self._words, limits, functions)
        self._depth = 0
        self._loops = 0

    def parse(self) -> Definition:
        """Read it to its end."""
        body, word, at = self._body(top=True)
        if word != "":
            self._stray(word, at)
        return Definition(body, self._pipelines.scope.size)

    def _stray(self, word: str, at: int) -> NoReturn:
        if word == "end":
            raise TemplateFaultError(
                "there is no block to end here", hint="remove the {{ end }}", position=at
            )
        raise TemplateFaultError("there is no block that this else belongs to", position=at)

    def _body(self, *, top: bool = False) -> tuple[Body, str, int]:
        """Read blocks up to an `end` or `else`, which is returned with its place."""
        blocks: list[Block] = []
        while True:
            word = self._words.next()
            if word.kind == "plain":
                if word.text:
                    blocks.append(Plain(word.text))
                continue
            if word.kind == "end":
                if not top:
                    raise TemplateFaultError(
                        "a block is not ended",
                        hint="if, range, with, define, block need {{ end }}",
                        position=word.position,
                    )
                return tuple(blocks), "", word.position
            self._words.skip_space()
            first = self._words.peek()
            if first.kind != "name" or first.text not in _WORDS:
                blocks.append(Action(self._pipelines.parse_action("command")))
                continue
            self._words.next()
            if first.text == "end":
                self._close("end")
                return tuple(blocks), "end", first.position
            if first.text == "else":
                return tuple(blocks), "else", first.position
            block = self._control(first, top=top)
            if block is not None:
                blocks.append(block)

    def _control(self, word: Word, *, top: bool) -> Block | None:
        if word.text in {"if", "with"}:
            return self._choice(word)
        if word.text == "range":
            return self._range(word)
        if word.text == "template":
            return self._template(word)
        if word.text == "block":
            return self._block(word)
        if word.text == "define":
            self._define(word, top=top)
            return None
        self._close(word.text)
        if not self._loops:
            raise TemplateFaultError(
                f"{word.text} stands outside of a range", position=word.position
            )
        return Jump(Leave(word.text))

    def _close(self, after: str) -> None:
        self._words.skip_space()
        word = self._words.next()
        if word.kind != "close":
            raise TemplateFaultError(f"nothing can follow {after} here", position=word.position)

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > self._limits.nesting:
            raise TemplateFaultError("the template is nested too deeply", position=at)

    def _choice(self, word: Word) -> Block:
        scope = self._pipelines.scope
        outer = scope.mark()
        before = self._depth
        branches: list[Branch] = []
        otherwise: Body = ()
        kind = word
        while True:
            self._deeper(word.position)
            pipeline = self._pipelines.parse_action(kind.text)
            inner = scope.mark()
            body, ended, at = self._body()
            scope.drop(inner)
            branches.append(Branch(pipeline, body, kind.text == "with"))
            if ended == "end":
                break
            following = self._else(word.text)
            if following is None:
                otherwise, ended, at = self._body()
                if ended != "end":
                    self._stray("else", at)
                break
            kind = following
        scope.drop(outer)
        self._depth = before
        return Conditional(tuple(branches), otherwise)

    def _else(self, of: str) -> Word | None:
        """Read what stands after else: another condition of the same kind, or nothing."""
        self._words.skip_space()
        word = self._words.peek()
        if word.kind == "name" and word.text == of:
            return self._words.next()
        self._close("else")
        return None

    def _range(self, word: Word) -> Block:
        scope = self._pipelines.scope
        outer = scope.mark()
        self._deeper(word.position)
        pipeline = self._pipelines.parse_action("range")
        inner = scope.mark()
        self._loops += 1
        body, ended, at = self._body()
        self._loops -= 1
        scope.drop(inner)
        otherwise: Body = ()
        if ended == "else":
            if self._else("range") is not None:
                self._stray("else", at)
            otherwise, ended, at = self._body()
            if ended != "end":
                self._stray("else", at)
        scope.drop(outer)
        self._depth -= 1
        return Range(pipeline, body, otherwise)

    def _name(self, of: str) -> str:
        self._words.skip_space()
        word = self._words.next()
        if word.kind != "text":
            raise TemplateFaultError(
                f"{of} needs a name in quotes", hint=f'{of} "name"', position=word.position
            )
        try:
            return parse_text(word.text)
        except BadLiteralError as error:
            raise TemplateFaultError(str(error), position=word.position) from None

    def _template(self, word: Word) -> Block:
        name = self._name("template")
        self._words.skip_space()
        argument = None
        if self._words.peek().kind == "close":
            self._words.next()
        else:
            argument = self._pipelines.parse_action("template")
        return TemplateCall(word.position, name, argument, self._definitions)

    def _block(self, word: Word) -> Block:
        name = self._name("block")
        argument = self._pipelines.parse_action("block")
        self._definition(name, word)
        return TemplateCall(word.position, name, argument, self._definitions)

    def _define(self, word: Word, *, top: bool) -> None:
        if not top:
            raise TemplateFaultError(
                "define stands inside of another block", hint="move it out", position=word.position
            )
        name = self._name("define")
        self._close("the name")
        self._definition(name, word)

    def _definition(self, name: str, word: Word) -> None:
        """Read the body of a template of its own: it has no variables of what is around it."""
        self._deeper(word.position)
        outer_scope, outer_loops = self._pipelines.new_scope(), self._loops
        self._loops = 0
        body, ended, at = self._body()
        if ended != "end":
            self._stray("else", at)
        definition = Definition(body, self._pipelines.scope.size)
        self._pipelines.scope, self._loops = outer_scope, outer_loops
        self._depth -= 1
        before = self._definitions.get(name)
        if before is None or _is_empty(before.body):
            self._definitions[name] = definition
        elif not _is_empty(body):
            raise TemplateFaultError(
                f"the template {name[:100]!r} is defined twice", position=word.position
            )


def _is_empty(body: Body) -> bool:
    return all(isinstance(each, Plain) and not each.text.strip() for each in body)
