"""Pages of HTML in one file: their script runs, and no other."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

_HEAD = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{}">
"""
# Nothing is loaded, and the page's own script is the only one that runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"


def page(template: str, parts: Mapping[str, str]) -> str:
    """`template` with each word of `parts` replaced by its text, which is not looked through again.

    The template has one script element. The content security policy allows that script by its digest.
    """
    text = re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], template)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _HEAD.format(_POLICY.format(digest)) + text


def data(value: Any) -> str:
    """JSON that a script element can hold: nothing in it ends the element, or begins a comment."""
    return json.dumps(value).replace("<", "\\u003c")


def frame(text: str, height: int = 600) -> str:
    """A page inside a notebook. Its script can reach nothing of the notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(text)}"></iframe>'


def duration(us: float) -> str:
    """``12.3 µs``, ``4.56 ms`` or ``1.23 s``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def amount(nbytes: float) -> str:
    """``12 B``, ``3.4 kB`` or ``5.6 MB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} B"
