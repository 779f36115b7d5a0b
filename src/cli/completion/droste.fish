# fish completion for droste.
# `droste completion words` knows the commands, flags, and names of runs, volumes, keys…; this function
# passes the words of the line to it.
function __droste_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    for line in ($words[1] completion words -- $words[2..-1] "$current" 2>/dev/null)
        if string match --quiet ':files*' -- $line
            __fish_complete_path (string replace --regex '^--[^=]*=' '' -- "$current")
        else
            printf '%s\n' $line
        end
    end
end
complete --command droste --no-files --arguments '(__droste_complete)'
