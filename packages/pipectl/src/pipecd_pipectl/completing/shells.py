# SPDX-License-Identifier: Apache-2.0
"""The scripts that let bash, zsh and fish complete with TAB, and how we answer them.

They differ from click's: nothing is ever printed into the prompt, nothing that is answered is
expanded by the shell, `../pipectl` and `~/bin/pipectl` are completed too, and bash does not lose
the thread at the `:` and `@` that are in names of contexts.
"""

import os
import sys
from typing import Final, NoReturn

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

PROGRAM: Final = "pipectl"

_BASH: Final = """\
%(complete_func)s() {
    local line kind value program="${1/#\\~\\//$HOME/}"
    COMPREPLY=()
    while IFS= read -r line; do
        kind="${line%%%%,*}"
        value="${line#*,}"
        case "$kind" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$program" 2>/dev/null </dev/null)
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH: Final = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described response
    local kind key descr program="${words[1]/#\\~\\//$HOME/}"
    response=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete "$program" 2>/dev/null </dev/null)}")
    for kind key descr in "${response[@]}"; do
        case "$kind" in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ "$descr" == "_" ]]; then
                    plain+=("$key")
                else
                    described+=("$key":"$descr")
                fi
                ;;
        esac
    done
    if (( $#described )); then
        _describe -V unsorted described -U
    fi
    if (( $#plain )); then
        compadd -U -V unsorted -a plain
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH: Final = """\
function %(complete_func)s
    set -l words (commandline -cpo)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l line (commandline -cp | string join ' ')
    set -l word (commandline -ct | string join ' ')
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS="$line" COMP_CWORD="$word" \\
        $program 2>/dev/null </dev/null)
    for completion in $response
        set -l parts (string split -m1 "," -- $completion)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                printf '%%s\\n' $parts[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Bash(BashComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the cursor's, and that one, from the line as it was typed.

        bash's own list of words is cut at each of COMP_WORDBREAKS.
        """
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Returns the completions without what stands before the part that bash replaces."""
        found = super().get_completions(args, incomplete)
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        value = incomplete.partition("=")[2] if incomplete.startswith("-") else incomplete
        kept = value[: max((value.rfind(each) for each in breaks), default=-1) + 1]
        return [_shorten(each, kept) if each.type == "plain" else each for each in found]


def _shorten(item: CompletionItem[str], start: str) -> CompletionItem[str]:
    return CompletionItem(item.value.removeprefix(start), help=item.help)


class _Zsh(ZshComplete):
    source_template = _ZSH


class _Fish(FishComplete):
    source_template = _FISH


SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def make_script(command: click.Command, shell: str, variable: str) -> str:
    """Returns the script of a shell."""
    made = SHELLS[shell](command, {}, PROGRAM, variable)
    # Not the method of the class: for bash that one runs bash, to see how old it is.
    return ShellComplete.source(made)


def answer_shell(command: click.Command, variable: str) -> NoReturn:
    """Answers the shell that asks by `variable`, and exits; says nothing of what goes wrong."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)  # also gRPC, which writes to it by itself
    for name, made in SHELLS.items():
        add_completion_class(made, name)
    try:
        shell_complete(command, {}, PROGRAM, variable, os.environ[variable])
    except Exception:  # noqa: BLE001 - a wrong line is nothing to complete
        sys.exit(1)
    sys.exit(0)
