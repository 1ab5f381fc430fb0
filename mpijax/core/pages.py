"""Pages of HTML in one file: their script runs, and no other."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_HEAD = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{}">
"""
# Nothing is loaded, and the page's own script is the only one that runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src {}"


def page(template: str, parts: Mapping[str, str], framed: Iterable[str] = ()) -> str:
    """`template` with each word of `parts` replaced by its text, which is not looked through again.

    The template has one script element. The content security policy allows that script by its digest.
    framed: pages that this one shows in frames. The policy, which frames inherit, allows their scripts too.
    """
    text = re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], template)
    allowed = dict.fromkeys(map(_digest, (text, *framed)))
    return _HEAD.format(_POLICY.format(" ".join(allowed))) + text


def _digest(text: str) -> str:
    """The script of a page, as a policy names it."""
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def data(value: Any) -> str:
    """JSON that a script element can hold: nothing in it ends the element, or begins a comment."""
    return json.dumps(value).replace("<", "\\u003c")


def frame(text: str, height: int = 600) -> str:
    """A page inside a notebook. Its script can reach nothing of the notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(text)}"></iframe>'
