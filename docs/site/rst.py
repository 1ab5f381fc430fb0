"""Docstrings as reStructuredText.

They have paragraphs, lists, indented code, examples (`>>> `), code `in backticks`, and sections such as `Args:` whose
items are `name: what it is`.
"""

import re
import textwrap

SECTIONS = {
    "Args:": "Arguments",
    "Attributes:": "Attributes",
    "Raises:": "Raises",
    "Returns:": "Returns",
    "Warns:": "Warns",
    "Yields:": "Yields",
}
_ITEM = re.compile(r"^([*\w][\w.*]*(?:, [*\w][\w.*]*)*): (.*)$", re.DOTALL)


def of_docstring(text: str, module: str, known: set[str]) -> str:
    """A docstring. `known`: full names to which code in backticks is linked; `module`: where it looks first."""
    blocks = [block for block in re.split(r"\n[ ]*\n", text.strip("\n")) if block.strip()]
    return "\n".join(_block(block, module, known) for block in blocks)


def _block(block: str, module: str, known: set[str]) -> str:
    lines = block.split("\n")
    if lines[0].startswith(">>>"):
        return _code(block, "pycon")
    if lines[0].startswith((" ", "\t")):
        return _code(textwrap.dedent(block), "text")
    if lines[0] in SECTIONS:
        return _section(SECTIONS[lines[0]], textwrap.dedent("\n".join(lines[1:])), module, known)
    if lines[0].startswith("- "):
        return "\n".join(f"- {inline(item, module, known)}" for item in _items(block[2:], "\n- ")) + "\n"
    deeper = next((i for i, line in enumerate(lines) if line.startswith("    ")), len(lines))
    text = inline(" ".join(lines[:deeper]), module, known) + "\n"
    rest = "\n".join(lines[deeper:])
    return f"{text}\n{_code(textwrap.dedent(rest), 'text')}" if rest else text


def _section(heading: str, body: str, module: str, known: set[str]) -> str:
    items = _items(body, "\n", unindented=True)
    shown = []
    for item in items:
        named = _ITEM.match(item)
        if named and heading != "Returns":
            names = ", ".join(f"``{name}``" for name in named[1].split(", "))
            shown.append(f"- {names}: {inline(named[2], module, known)}")
        else:
            shown.append(f"- {inline(item, module, known)}")
    return f"**{heading}**\n\n" + "\n".join(shown) + "\n"


def _items(text: str, separator: str, unindented: bool = False) -> list[str]:
    """The items of a list, each on one line. unindented: an item starts at each line that is not indented."""
    if not unindented:
        return [" ".join(item.split()) for item in text.split(separator)]
    found: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" ") and found:
            found[-1] += " " + line.strip()
        else:
            found.append(line.strip())
    return [item for item in found if item]


def _code(text: str, language: str) -> str:
    return f".. code-block:: {language}\n\n" + textwrap.indent(text, "   ") + "\n"


def inline(text: str, module: str, known: set[str]) -> str:
    """A paragraph: code in backticks as code, linked if it is a known name; everything else as plain text."""
    text = text.replace("``", "`")
    if text.count("`") % 2:
        return _escaped(text)
    parts = text.split("`")
    for i, part in enumerate(parts):
        parts[i] = _reference(part, module, known) if i % 2 else _escaped(part)
        if i % 2 and i + 1 < len(parts) and parts[i + 1][:1].isalnum():
            parts[i] += "\\ "  # `psum`s
        if i % 2 and parts[i - 1][-1:] and not parts[i - 1][-1:].isspace():
            parts[i] = "\\ " + parts[i]
    return "".join(parts)


def _reference(code: str, module: str, known: set[str]) -> str:
    """Code that is a name of this module, or of all, as a link."""
    for full in (f"{module}.{code}", code, f"mpijax.{code}"):
        if full in known:
            return f":py:obj:`{code} <{full}>`"
    return f"``{code.strip()}``" if code.strip() else ""


def _escaped(text: str) -> str:
    return re.sub(r"([\\*|_`<>\[\]])", r"\\\1", text)


def indented(text: str) -> list[str]:
    return textwrap.indent(text, "   ").split("\n")
