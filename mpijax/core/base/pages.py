"""Builds single-file HTML pages that can run their own script only."""

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
# Loads nothing, and runs the page's own script only.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src {}"


def page(template: str, parts: Mapping[str, str], framed: Iterable[str] = ()) -> str:
    """`template` with each word of `parts` replaced by its text. Replacements are not searched again.

    The template has one script element. The content security policy allows that script by its digest.
    framed: pages that this page shows in frames. Frames inherit the policy, so it allows their scripts too.
    """
    text = re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], template)
    allowed = dict.fromkeys(map(_digest, (text, *framed)))
    return _HEAD.format(_POLICY.format(" ".join(allowed))) + text


def _digest(text: str) -> str:
    """The digest of a page's script, in the format of the policy."""
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def data(value: Any) -> str:
    """JSON that is safe inside a script element: it cannot end the element or start a comment."""
    return json.dumps(value).replace("<", "\\u003c")


def frame(text: str, height: int = 600) -> str:
    """A page embedded in a notebook. Its script cannot access the notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(text)}"></iframe>'
