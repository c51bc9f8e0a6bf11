"""Numbers in the forms in which programs print them: in calls such as `tensor(0.5)`, and with commas. Pure.

Text of logs is untrusted input: every repetition in these expressions is bounded, so the time is linear in the length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FLOAT = re.compile(r"[-+]?(?:(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:e[-+]?\d{1,4})?|nan|inf(?:inity)?)", re.IGNORECASE)
_ANY_CALL = re.compile(r"\w\(")
PARAMETER = "Parameter containing:"
"""What torch prints on a line above a tensor that is a parameter."""
_CALL = re.compile(
    rf"(?:\b{PARAMETER}\s{{0,2}})?"
    r"(?<![\w.])(?:[a-z_]\w{0,30}\.){0,4}"
    r"(?:\w{0,30}(?:tensor|array)|parameter|decimal|(?:bfloat|float|u?int)\d{1,3}(?:_\w{1,20})?|longdouble|float_|half)\(",
    re.IGNORECASE,
)
"""The beginning of `tensor(...)`, `np.float64(...)`, `Array(...)`, `DTensor(...)`, `Decimal(...)`."""
_OBJECT = re.compile(
    r"<(?:[a-z_]\w{0,30}\.){0,4}\w{0,20}(?:tensor|variable|parameter)\b[^<>()]{0,300}(?:\(\)[^<>()]{0,300})?"
    r"\b(?:numpy|value)=([^<>,()\s]{1,60})>",
    re.IGNORECASE,
)
"""TensorFlow's and Keras's `<tf.Tensor: shape=(), dtype=float32, numpy=0.5>`."""
_KEYWORD = re.compile(r"\s*([a-z_]\w{0,60})\s?=(?!=)", re.IGNORECASE)
_VALUE_KEYWORDS = ("value", "numpy", "data", "local_tensor", "object")
_LIST_OF_ONE = re.compile(
    r"([=:]\s{0,3})\[\s?([-+]?(?:\d{1,30}\.\d{0,30}(?:e[-+]?\d{1,4})?|\d{1,30}e[-+]?\d{1,4}))\s?\]"
)
"""`lr: [0.001]`. A whole number in brackets is a position or a rank."""
_RATES = re.compile(
    rf"(\blr\s?[=:]\s{{0,3}})[\[(]\s?({_FLOAT.pattern})(?:,\s{{0,2}}{_FLOAT.pattern}){{0,63}},?\s?[\])]", re.IGNORECASE
)
"""The learning rates of all groups of an optimizer, of which the first is read: `lr=[0.001, 0.0001]`, `lr:(0.001,)`."""
_DEPTH_MAX = 8
_OPENING, _CLOSING = "([{<", ")]}>"

_DECIMAL_COMMA = re.compile(r"([-+]?\d{1,20}),(\d{1,20}(?:e[-+]?\d{1,4})?)", re.IGNORECASE)
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3}){1,6}(?:\.\d{0,20}(?:e[-+]?\d{1,4})?)?", re.IGNORECASE)
"""A number with thousands separators."""
_POINT_GROUPS = re.compile(r"([-+]?[1-9]\d{0,2}(?:\.\d{3}){1,6}),(\d{1,20})")
"""The same where the comma is the decimal separator: `1.234,5`."""


def unwrapped(text: str) -> str:
    """The text with the number in place of every call that prints one: `tensor(0.5, device='xla:0')` -> `0.5`.

    A call that prints several numbers or none becomes its name, so that nothing in it is taken for a number.
    """
    if "(" in text and _ANY_CALL.search(text) is not None:
        text = _without_calls(text)
    if "=" in text and "<" in text:
        text = _OBJECT.sub(lambda match: match[1] if _FLOAT.fullmatch(match[1]) else "", text)
    return _LIST_OF_ONE.sub(r"\1\2", _RATES.sub(r"\1\2", text)) if "[" in text or ":(" in text else text


def _without_calls(text: str) -> str:
    parts: list[str] = []
    reached = 0
    for call in _CALL.finditer(text):
        if call.start() < reached:
            continue
        end = _end_of(text, call.end())
        number = _number_in(text[call.end() : end - 1], 0) if end else None
        parts += (text[reached : call.start()], number if number is not None else text[call.start() : call.end() - 1])
        reached = end or len(text)
    return "".join((*parts, text[reached:]))


def _outside_quotes(text: str, start: int, depth: int) -> Iterator[tuple[int, str, int]]:
    """The characters outside of quoted texts, each with its place and the number of brackets that are open after it."""
    quote = ""
    for place in range(start, len(text)):
        sign = text[place]
        if quote:
            quote = "" if sign == quote else quote
            continue
        if sign in "'\"":
            quote = sign
        depth += (sign in _OPENING) - (sign in _CLOSING)
        yield place, sign, depth


def _end_of(text: str, start: int) -> int:
    """Where a call ends whose arguments begin at `start`; 0 if it does not end in this text."""
    return next((place + 1 for place, _, depth in _outside_quotes(text, start, 1) if not depth), 0)


def _number_in(arguments: str, depth: int) -> str | None:
    """The text of the only number among the arguments of a call; keywords such as `device` are not values."""
    positional: list[str] = []
    named: list[str] = []
    for argument in _split(arguments):
        keyword = _KEYWORD.match(argument)
        if keyword is None:
            positional.append(argument)
        elif keyword[1] in _VALUE_KEYWORDS:
            named.append(argument[keyword.end() :])
    values = positional or named
    if len(values) != 1 or depth > _DEPTH_MAX:
        return None
    value = values[0].strip()
    if value[:1] == "[" and value[-1:] == "]":
        return _number_in(value[1:-1], depth + 1)
    if value[:1] in ("'", '"') and value[-1:] == value[:1]:
        value = value[1:-1]
    call = _CALL.match(value)
    if call is not None and _end_of(value, call.end()) == len(value):
        return _number_in(value[call.end() : -1], depth + 1)
    return value if _FLOAT.fullmatch(value) else None


def _split(arguments: str) -> list[str]:
    """The arguments of a call, which are separated by commas."""
    parts: list[str] = []
    start = 0
    for place, sign, depth in _outside_quotes(arguments, 0, 0):
        if sign == "," and not depth:
            parts.append(arguments[start:place])
            start = place + 1
    return [*parts, arguments[start:]]


def printed_number(text: str) -> float | None:
    """The number that a whole text is in a form of `unwrapped`, or in brackets; None for any other text."""
    text = text.strip()
    if text[-1:] not in (")", "]", ">"):
        return None
    number = _number_in(text, 0) if text[0] == "[" else unwrapped(text)
    return float(number) if number is not None and _FLOAT.fullmatch(number) else None


def is_decimal_comma(text: str) -> bool:
    """Whether the comma of a number can only be the decimal separator: `0,532`, `12,5`, `1.234,5`."""
    is_ambiguous = _GROUPS.fullmatch(text) is not None
    return not is_ambiguous and (_DECIMAL_COMMA.fullmatch(text) or _POINT_GROUPS.fullmatch(text)) is not None


def with_point(text: str) -> str | None:
    """A number with a decimal comma as one with a point: `1.234,5` -> `1234.5`; None if the text is not one."""
    if match := _DECIMAL_COMMA.fullmatch(text):
        return f"{match[1]}.{match[2]}"
    if match := _POINT_GROUPS.fullmatch(text):
        return f"{match[1].replace('.', '')}.{match[2]}"
    return None


def without_comma(text: str, *, is_decimal: bool) -> str | None:
    """A whole text that is a number with a comma, as a number without it; None if it is not one.

    `is_decimal`: a comma that may separate thousands as well is the decimal separator.
    """
    text = text.strip()
    if _GROUPS.fullmatch(text) and not (is_decimal and _DECIMAL_COMMA.fullmatch(text)):
        return text.replace(",", "")
    return with_point(text)
