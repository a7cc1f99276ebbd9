"""Launch scripts as the shell would read them, as far as that needs no machine.

Variables, arrays, defaults, arithmetic, quotes, comments, here-documents and plain conditions are
understood. Nothing is run and no environment is read: what only a machine knows stays a word with
a ``$`` in it, and whoever needs its value says so.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from nestopt.interop.launch.shell_values import arithmetic, holds, join

__all__ = ["commands", "split_words"]

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PARAMETER = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w*|\d)|\{(?P<name>[A-Za-z_]\w*|\d+)(?P<rest>[^{}]*)\})"
)
_DECLARING = {"export", "local", "readonly", "declare", "typeset"}
_LOOPS = {"for", "while", "until", "case", "select"}


@dataclass(frozen=True, slots=True)
class _Word:
    """A word before expansion: pieces with the quote that holds each, or an array's words."""

    pieces: tuple[tuple[str, str], ...]
    array: tuple[_Word, ...] | None = None

    @property
    def head(self) -> str:
        """The unquoted text at its start."""
        return self.pieces[0][1] if self.pieces and self.pieces[0][0] == "" else ""


@dataclass(slots=True)
class _Scanner:
    """Cuts a script into statements of words."""

    text: str
    at: int = 0
    here: list[str] = field(default_factory=list)

    def statements(self) -> list[tuple[list[_Word], str]]:
        """Every statement with the operator that ends it."""
        found: list[tuple[list[_Word], str]] = []
        words: list[_Word] = []
        while self.at < len(self.text):
            self._blanks()
            end = re.compile(r"\n|;+|&&|\|\||[&|]").match(self.text, self.at)
            if end is not None:
                self.at = end.end()
                if end[0] == "\n":
                    self._here_documents()
                found.append((words, end[0]))
                words = []
            elif self.at < len(self.text):
                words += self._word()
        found.append((words, "\n"))
        return [(words, end) for words, end in found if words or end != "\n"]

    def _blanks(self) -> None:
        skipped = re.compile(r"(?:[ \t\r]|\\\r?\n)*(?:#[^\n]*)?").match(self.text, self.at)
        assert skipped is not None
        self.at = skipped.end()

    def _here_documents(self) -> None:
        for mark in self.here:
            end = re.compile(rf"(?m)^\t*{re.escape(mark)}$\n?").search(self.text, self.at)
            self.at = len(self.text) if end is None else end.end()
        self.here = []

    def _word(self) -> list[_Word]:
        opening = re.compile(r"<<-?\s*(['\"]?)(\w+)\1|[<>]+&?|[()]").match(self.text, self.at)
        if opening is not None and not self.text.startswith("<<<", self.at):
            self.at = opening.end()
            self.here += [opening[2]] if opening[2] else []
            return []
        if self.text.startswith("<<<", self.at):
            self.at += 3
            return []
        pieces: list[tuple[str, str]] = []
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "(" and len(pieces) == 1 and _ASSIGNMENT.fullmatch(pieces[0][1]):
                return [_Word(tuple(pieces), self._array())]
            # argument files hold bare layouts: Et*5|(tt|)*6|t*5L
            inside = depth > 0 or char == "("
            bare = pieces and (
                (char in "()" and inside) or re.match(r"\|[^\s|]", self.text[self.at : self.at + 2])
            )
            if not bare and (char in " \t\r\n;&|<>()" or self.text.startswith("\\\n", self.at)):
                break
            depth += (char == "(") - (char == ")")
            pieces.append(self._piece(char))
            if len(pieces) > 1 and pieces[-1][0] == pieces[-2][0] == "":
                pieces[-2:] = [("", pieces[-2][1] + pieces[-1][1])]
        return [_Word(tuple(pieces))]

    def _array(self) -> tuple[_Word, ...]:
        self.at += 1
        words: list[_Word] = []
        while True:
            self._blanks()
            if self.at >= len(self.text):
                raise ValueError("No closing parenthesis")
            if self.text[self.at] == ")":
                self.at += 1
                return tuple(words)
            if self.text[self.at] in "\n;&|(<>":
                self.at += 1
            else:
                words += self._word()

    def _piece(self, char: str) -> tuple[str, str]:
        start = self.at
        if char == "'":
            end = self.text.find("'", start + 1)
            if end < 0:
                raise ValueError("No closing quotation")
            self.at = end + 1
            return "'", self.text[start + 1 : end]
        if char == '"':
            self.at += 1
            return '"', self._until('"')
        if char == "\\":
            self.at += 2
            return "'", self.text[start + 1 : start + 2]
        if char == "`" or self.text.startswith(("$(", "${"), start):
            self.at += 1 if char == "`" else 2
            self._until({"`": "`", "$(": ")", "${": "}"}[self.text[start : self.at]])
            return "", self.text[start : self.at]
        self.at += 1
        return "", char

    def _until(self, closing: str) -> str:
        """The text up to a closing mark, with what nests in it; behind the mark afterwards."""
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closing:
                self.at += 1
                return self.text[start : self.at - 1]
            if char == "\\":
                self.at += 2
            elif self.text.startswith(("$(", "${"), self.at):
                self.at += 2
                self._until(")" if self.text[self.at - 1] == "(" else "}")
            elif char in "('\"`" and closing in ")`" and char != closing:
                self.at += 1
                self._until(")" if char == "(" else char)
            else:
                self.at += 1
        raise ValueError("No closing quotation" if closing in "\"'`" else f"No closing {closing}")


@dataclass(slots=True)
class _Reader:
    """Runs the assignments and conditions of a script, and keeps its commands."""

    given: dict[str, str]
    values: dict[str, str | list[str]] = field(default_factory=dict)
    branches: list[list[bool | None]] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    loops: int = 0

    @property
    def live(self) -> bool | None:
        """Whether a statement here is run; None if only a machine can say."""
        states = [branch[-1] for branch in self.branches]
        if False in states:
            return False
        return None if None in states or self.loops else True

    def expand(self, text: str) -> str:
        """Text with its parameters replaced, where they are known."""
        text = re.sub(r"\$\(\((.*?)\)\)", self._sum, text, flags=re.S)
        for _ in range(8):
            expanded = _PARAMETER.sub(self._parameter, text)
            if expanded == text:
                break
            text = expanded
        return text

    def _sum(self, match: re.Match[str]) -> str:
        inner = _NAME.sub(lambda name: str(self._value(name[0]) or name[0]), self.expand(match[1]))
        value = arithmetic(inner)
        return match[0] if value is None else str(value)

    def _value(self, name: str) -> str | None:
        value = self.given.get(name, self.values.get(name))
        if isinstance(value, list):
            return value[0] if value else ""
        return value

    def _parameter(self, match: re.Match[str]) -> str:
        name, rest = match["plain"] or match["name"], match["rest"] or ""
        if rest in ("[@]", "[*]"):
            items = self.given.get(name, self.values.get(name))
            if items is None:
                return match[0]
            return join(items) if isinstance(items, list) else items
        value = self._value(name)
        default = re.match(r":?[-=](.*)", rest, re.S)
        if default is not None:
            missing = value is None or (rest[0] == ":" and not value)
            return default[1].strip("\"'") if missing else str(value)
        if value is None or (rest and not rest.startswith((":?", "?"))):
            return match[0]
        return str(value)

    def words(self, word: _Word) -> list[str]:
        """The words that a word expands to."""
        text, split = "", False
        for quote, piece in word.pieces:
            part = piece if quote == "'" else self.expand(piece)
            if quote == '"':
                part = re.sub(r"\\\r?\n", " ", part)
                part = re.sub(r'\\(["\\$`])', r"\1", part)
            # a bare value is split at blanks, and a list is a word an item
            split = split or (part != piece and (quote == "" or "[@]" in piece))
            text += part
        # a quoted list of arguments is a list when it is used: eval, bash -c, "${ARGS[@]}"
        listed = re.search(r"\s", text) and re.search(r"(^|\s)-", text)
        return split_words(text) if split or listed else [text]

    def read(self, words: list[_Word]) -> None:
        """Run one statement."""
        while words and words[0].head in ("then", "do", "{", "}", "else", "!", "time", "exec"):
            if words[0].head == "else" and self.branches:
                self._other(None)
            words = words[1:]
        if not words or self._control(words):
            return
        names = words[1:] if words[0].head in _DECLARING else words
        if all(_ASSIGNMENT.match(word.head) for word in names):
            for word in names:
                self._assign(word)
        elif words[0].head not in _DECLARING and self.live is not False:
            if _ASSIGNMENT.match(words[0].head):
                # NAME=value command: the value is the command's alone
                words = [word for word in words if not _ASSIGNMENT.match(word.head)]
            line = [item for word in words for item in self.words(word)]
            if line and line[0].startswith("-") and self.commands:
                self.commands[-1] += line
            else:
                self.commands.append(line)

    def _control(self, words: list[_Word]) -> bool:
        """Whether a statement was one of control."""
        head = words[0].head
        if head == "if":
            self.branches.append([self._condition(words[1:])])
        elif head == "elif" and self.branches:
            self._other(words[1:])
        elif head == "fi" and self.branches:
            self.branches.pop()
        elif head in _LOOPS:
            self.loops += 1
        elif head in ("done", "esac"):
            self.loops = max(0, self.loops - 1)
        else:
            return False
        return True

    def _other(self, condition: list[_Word] | None) -> None:
        """Enter an ``elif`` or ``else``: run if nothing before it was."""
        states = self.branches[-1]
        if True in states:
            states.append(False)
        elif None in states:
            states.append(None)
        else:
            states.append(True if condition is None else self._condition(condition))

    def _condition(self, words: list[_Word]) -> bool | None:
        shown = []
        for word in words:
            text = "".join(self.expand(piece) for _, piece in word.pieces)
            # what nobody sets is empty, as in a fresh shell
            shown.append(_PARAMETER.sub("", text))
        return holds(shown)

    def join_condition(self, words: list[_Word], operator: str) -> None:
        """Add a test behind ``&&`` or ``||`` to the condition just read."""
        states, other = self.branches[-1], self._condition(words)
        decisive = operator == "||"
        if states[-1] is decisive or other is decisive:
            states[-1] = decisive
        elif states[-1] is None or other is None:
            states[-1] = None

    def _assign(self, word: _Word) -> None:
        match = _ASSIGNMENT.match(word.head)
        assert match is not None
        name, adds = match[1], bool(match[2])
        if name in self.given or self.live is False:
            return
        if self.live is None:
            if not adds:
                self.values.pop(name, None)
            return
        if word.array is not None:
            items = [item for entry in word.array for item in self.words(entry)]
            old = self.values.get(name, [])
            self.values[name] = ([old] if isinstance(old, str) else old) * adds + items
            self.assigned.append(join(items))
            return
        rest = _Word((("", word.head[match.end() :]), *word.pieces[1:]))
        text = "".join(
            piece if quote == "'" else re.sub(r"\\\r?\n", " ", self.expand(piece))
            for quote, piece in rest.pieces
        )
        before = self._value(name) if adds else None
        self.values[name] = (before or "") + text
        self.assigned.append(text)


def split_words(text: str) -> list[str]:
    """The words of text with quotes; those between blanks if a quote is left open."""
    try:
        return shlex.split(text, comments=False)
    except ValueError:
        return text.split()


def commands(text: str, given: dict[str, str]) -> tuple[list[list[str]], list[str]]:
    """The commands of a script, and the lists that it assigns.

    Parameters
    ----------
    text : str
    given : dict of str to str
        Variables that the user states; they hold whatever the script assigns.

    Returns
    -------
    list of list of str
        Words of every command that is run, its variables replaced where they are known.
    list of str
        Values of the assignments, in order.

    Raises
    ------
    ValueError
        If a quote, a brace or a parenthesis is left open.
    """
    reader = _Reader(given)
    operator, heading = "\n", False
    for words, end in _Scanner(text).statements():
        starts = bool(words) and words[0].head in ("if", "elif")
        if heading and not starts and operator in ("&&", "||") and reader.branches:
            reader.join_condition(words, operator)
        else:
            reader.read(words)
            heading = starts
        operator = end
    return reader.commands, reader.assigned
