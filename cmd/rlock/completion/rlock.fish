# Completion of rlock for fish: rlock completion fish >~/.config/fish/completions/rlock.fish

function __rlock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    if set -l dash (contains -i -- -- $words) # what follows is another command
        set -e words[1..$dash]
        complete -C (string join ' ' (string escape -- $words) "$current")
        return
    end
    set -l candidates ($words "$current" --generate-shell-completion 2>/dev/null)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path "$current"
    end
end

complete -c rlock -f -a '(__rlock_complete)'
