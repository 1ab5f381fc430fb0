"""``mpijax completion bash`` (zsh, fish): a script that completes commands, options and their values.

    eval "$(mpijax completion bash)"              in ~/.bashrc
    eval "$(mpijax completion zsh)"               in ~/.zshrc, after compinit
    mpijax completion fish > ~/.config/fish/completions/mpijax.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator

from mpijax import cli


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax completion", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("shell", choices=tuple(SHELLS), help="your shell")
    return p


def main(arguments: list[str]) -> int:
    """Print the script."""
    print(SHELLS[parser().parse_args(arguments).shell]())
    return 0


def _actions() -> Iterator[tuple[str, str, list[argparse.Action]]]:
    """Each command with its help text and its parser's actions."""
    for command, (_, does) in cli.COMMANDS.items():
        yield command, does, _with_inner(cli.parser_of(command)._actions)


def _with_inner(actions: list[argparse.Action]) -> list[argparse.Action]:
    """The actions, and those of subcommands, each option once."""
    inner = [p for action in actions if isinstance(action, argparse._SubParsersAction) for p in action.choices.values()]
    found = {tuple(action.option_strings): action for p in inner for action in p._actions if action.option_strings}
    known = {tuple(action.option_strings) for action in actions}
    return [*actions, *(action for options, action in found.items() if options not in known)]


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def bash() -> str:
    """The bash script: after an option with choices it completes these, otherwise files."""
    cases = []
    for command, _, actions in _actions():
        options = [option for action in actions for option in action.option_strings]
        first = [choice for action in actions if not action.option_strings for choice in _choices(action)]
        valued = "".join(
            f'{"|".join(action.option_strings)}) words="{" ".join(_choices(action))}" ;; '
            for action in actions
            if action.option_strings and _choices(action)
        )
        positional = f'[ "$COMP_CWORD" -eq 2 ] && words="{" ".join(first)}"' if first else ":"
        cases.append(f'''    {command})
      case $current in -*) words="{" ".join(options)}" ;; *) {positional} ;; esac
      case $previous in {valued}*) ;; esac ;;''')
    return "\n".join([
        "_mpijax() {",
        '  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=""',
        '  case ${COMP_WORDS[1]} in',
        *cases,
        "  esac",
        f'  [ "$COMP_CWORD" -eq 1 ] && words="{" ".join(cli.COMMANDS)} --version --help"',
        "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")",
        "}",
        "complete -o default -F _mpijax mpijax",
    ])  # fmt: skip


def zsh() -> str:
    """The zsh script, based on `_arguments`, with the help of each option."""
    commands = " ".join(shlex.quote(f"{command}:{does}") for command, does, _ in _actions())
    cases = []
    for command, _, actions in _actions():
        specs = []
        for action in actions:
            text = _help(action).replace("[", "(").replace("]", ")").replace(":", "")
            value = ":value:" * _takes(action)
            if _choices(action):
                value = f":value:({' '.join(_choices(action))})"
            specs += [shlex.quote(f"{option}[{text}]{value}") for option in action.option_strings]
            if not action.option_strings and _choices(action):
                specs.append(shlex.quote(f"1:what:({' '.join(_choices(action))})"))
        cases.append(f"    {command}) _arguments {' '.join(specs)} '*:file:_files' ;;")
    return "\n".join([
        "#compdef mpijax",
        "_mpijax() {",
        f"  local -a commands=({commands})",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "  shift words; (( CURRENT-- ))",
        "  case $words[1] in",
        *cases,
        "  esac",
        "}",
        "compdef _mpijax mpijax",
    ])  # fmt: skip


def _takes(action: argparse.Action) -> bool:
    return action.nargs != 0 and bool(action.option_strings)


def fish() -> str:
    """The fish script: a line for each command and each option."""
    lines = [
        f"complete -c mpijax -n __fish_use_subcommand -f -a {command} -d {shlex.quote(does)}"
        for command, does, _ in _actions()
    ]
    for command, _, actions in _actions():
        seen = f"complete -c mpijax -n '__fish_seen_subcommand_from {command}'"
        for action in actions:
            choices = f" -x -a '{' '.join(_choices(action))}'" if _choices(action) else ""
            if not action.option_strings:
                lines += [f"{seen}{choices}"] if choices else []
                continue
            names = " ".join(_fish_name(option) for option in action.option_strings)
            lines.append(f"{seen} {names} -d {shlex.quote(_help(action))}{choices or ' -r' * _takes(action)}")
    return "\n".join(lines)


def _fish_name(option: str) -> str:
    """``-l bind`` for --bind, ``-s n`` for -n, ``-o np`` for -np."""
    name = option.lstrip("-")
    return f"-l {name}" if option.startswith("--") else f"-s {name}" if len(name) == 1 else f"-o {name}"


SHELLS: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
