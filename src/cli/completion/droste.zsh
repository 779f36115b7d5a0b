#compdef droste
# zsh completion for droste.
# `droste completion words` knows the commands, flags, and names of runs, volumes, keys…; this function
# passes the words of the line to it.
_droste()
{
    local line word about files=no
    local -a values texts directories
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        about=${line#*$'\t'}
        if [[ $word == :files ]]; then
            files=yes
            continue
        fi
        [[ $word == */ ]] && directories+=("$word") && continue
        values+=("$word")
        texts+=("$word${about:+ -- $about}")
    done < <($words[1] completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#directories} )) && compadd -S '' -- "${directories[@]}"
    (( ${#values} )) && compadd -l -d texts -- "${values[@]}"
    if [[ $files == yes ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '*='
        _files
    fi
}
# Loaded by compinit, the file is the function; sourced, it registers it.
if [[ $funcstack[1] == _droste ]]; then
    _droste "$@"
else
    compdef _droste droste
fi
