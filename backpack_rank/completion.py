"""Shell completion: ``backpack-rank completion bash`` prints what bash, zsh or fish reads.

The shell asks the command itself, so verbs, groups, choices and options are those of this version
and of the choices on the line: behind ``data=beir``, ``data.`` offers the options of ``beir``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from backpack_rank.checks import UsageError
from backpack_rank.files import read_yaml, resource_folder
from backpack_rank.options import choices, groups_of, nearest, own_options

ASKED = "--words"
"""``backpack-rank completion --words WORD ...``: what the scripts below ask."""

_BASH = """\
# Put this into ~/.bashrc:  eval "$(backpack-rank completion bash)"
_backpack_rank() {
    local line="${COMP_LINE:0:COMP_POINT}" typed word
    read -ra typed <<< "$line"
    [[ "$line" == *[[:space:]] ]] && typed+=("")
    word="${typed[-1]}"
    local IFS=$'\\n'
    COMPREPLY=($("${typed[0]}" completion --words "${typed[@]:1}" 2>/dev/null))
    # bash completes behind the last = or :, at which it splits words.
    local start="${word%"${word##*[=:]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$start"}")
    [[ "${COMPREPLY[0]}" == *[=.] ]] && compopt -o nospace
    return 0
}
complete -o default -F _backpack_rank backpack-rank
"""
_ZSH = """\
#compdef backpack-rank
# Put this into ~/.zshrc, behind compinit:  eval "$(backpack-rank completion zsh)"
_backpack_rank() {
    local -a found
    found=("${(@f)$("${words[1]}" completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then
        compadd -S '' -- "${(@M)found:#*[=.]}"
        compadd -- "${(@)found:#*[=.]}"
    else
        compset -P '*='
        _files
    fi
}
compdef _backpack_rank backpack-rank
"""
_FISH = """\
# Put this into ~/.config/fish/completions/backpack-rank.fish
function __backpack_rank
    set -l typed (commandline -opc) (commandline -ct)
    $typed[1] completion --words $typed[2..-1] 2>/dev/null
end
# Files where there is nothing else, as of options that name one.
complete -c backpack-rank -n 'string length -q -- (__backpack_rank)' -f -a '(__backpack_rank)'
complete -c backpack-rank -n 'not string length -q -- (__backpack_rank)' -F
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str) -> str:
    """What a shell reads to complete ``backpack-rank``.

    Raises:
        UsageError: no script is there for this shell.
    """
    if shell not in SCRIPTS:
        raise UsageError(
            f"backpack-rank completion {shell}: use one of {', '.join(SCRIPTS)}"
            f"{nearest(shell, SCRIPTS)}"
        )
    return SCRIPTS[shell]


def words(
    typed: Sequence[str], verbs: Iterable[str], flags: Mapping[str, Sequence[str]]
) -> list[str]:
    """What the last of the typed words may become.

    >>> words(["evaluate", "policy=pair"], ["train", "evaluate"], {})
    ['policy=paired_tokens']

    Args:
        typed: verb and options; the last one is unfinished and may be empty.
        verbs: of the command line.
        flags: words that a verb without options of conf/ takes.

    Returns:
        whole words; none where the word is unknown, or a file that the shell completes.
    """
    *before, word = typed or [""]
    if not before:
        known = [*verbs, "--help", "--version"]
    elif before[0] in flags:
        known = list(flags[before[0]])
    elif (resource_folder("conf") / f"{before[0]}.yaml").is_file():
        known = _words_of(before[0], before[1:], word)
    else:
        known = []
    return sorted(candidate for candidate in known if candidate.startswith(word))


def _words_of(verb: str, options: Sequence[str], word: str) -> list[str]:
    """Options of a verb that has a file in conf/, or values of the one that is typed."""
    groups, own = groups_of(verb), own_options(verb)
    name, equals, value = word.partition("=")
    if equals:
        # Of several values, separated by commas, the last one is completed.
        first = word[: len(word) - len(value.rpartition(",")[2])]
        if name in groups:
            return [f"{first}{choice}" for choice in choices(name)]
        if name == "list":
            return [f"{word[:5]}{group}" for group in groups]
        if isinstance(own.get(name), bool):
            return [f"{first}true", f"{first}false"]
        return []
    if word.startswith("-"):
        return ["-m", "--multirun", "--help", "--cfg"]
    if "." not in word:
        names = own.keys() - {"hydra", "prompt"}
        nested = [f"{name}." for name in names if _options_below(verb, name, options)]
        plain = [name for name in names if name in groups or not isinstance(own[name], Mapping)]
        return [*(f"{name}=" for name in plain), *nested]

    top, _, rest = word.partition(".")
    node: object = _options_below(verb, top, options)
    *path, _ = rest.split(".")
    for part in path:
        node = node.get(part, {}) if isinstance(node, Mapping) else {}
    start = ".".join([top, *path])
    found = []
    for key, value in (node if isinstance(node, Mapping) else {}).items():
        if not str(key).startswith("_"):
            found.append(f"{start}.{key}{'.' if isinstance(value, Mapping) else '='}")
    return found


def _options_below(verb: str, top: str, options: Sequence[str]) -> Mapping[str, object]:
    """Options of a group's chosen file and those that the verb's own file has below that name."""
    own = own_options(verb).get(top)
    content: dict[str, object] = dict(own) if isinstance(own, Mapping) else {}
    choice = groups_of(verb).get(top, "[").partition("]")[0].removeprefix("[")
    for option in options:
        if option.startswith(f"{top}="):
            choice = option.partition("=")[2]
    file = resource_folder("conf") / top / f"{choice}.yaml"
    if file.is_file():
        content = {**(read_yaml(file) or {}), **content}
        content.pop("defaults", None)
    return content
