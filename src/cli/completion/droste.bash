# bash completion for droste                                             -*- shell-script -*-
# `droste completion words` knows the commands, flags, and names of runs, volumes, keys…; this function
# passes the words of the line to it.
_droste()
{
    local words=() word joined=no i
    # Bash splits --flag=value at the equals sign.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $joined == yes || ( $word == = && ${#words[@]} -gt 0 ) ]]; then
            words[${#words[@]} - 1]+=$word
            [[ $word == = ]] && joined=yes || joined=no
        else
            words+=("$word")
        fi
    done
    local current=${words[${#words[@]} - 1]} before=
    [[ $current == --*=* && $COMP_WORDBREAKS == *=* ]] && before=${current%%=*}=
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        if [[ $word == :files ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <(compgen -f -- "${current#"$before"}")
        else
            [[ $word == */ ]] && compopt -o nospace 2>/dev/null
            COMPREPLY+=("${word#"$before"}")
        fi
    done < <("${COMP_WORDS[0]}" completion words -- "${words[@]}" 2>/dev/null)
}
complete -F _droste droste
